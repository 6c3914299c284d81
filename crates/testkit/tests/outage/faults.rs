//! Redis stopped, restarted, SIGSTOPped, behind a slow link and a cut one: every call answers in time and by its
//! policy, and everything recovers by itself.
