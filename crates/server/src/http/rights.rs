//! What a caller may do: a role, and the resources it may do it with.

use quaymaster::Code;
use quaymaster::schema::{Kind, Schema, Spec};

use super::problem::{Problem, excerpt, nearest};

/// What a token may do. Each role may also do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    Read,
    /// Keep a system running: pause, resume, redrive, reset.
    Operate,
    /// Everything that programs do.
    Write,
    /// Remove what others hold; no call does so yet.
    Admin,
}

impl Role {
    /// Every role, from the least to the most.
    pub(crate) const ALL: [Self; 4] = [Self::Read, Self::Operate, Self::Write, Self::Admin];

    /// The role's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }

    /// What the role may do.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Read => "Calls that only look",
            Self::Operate => "Also calls that keep a system running: pause, resume, redrive, reset",
            Self::Write => "Also every call of programs",
            Self::Admin => "Also calls that remove what others hold; there are none yet",
        }
    }

    /// The role of this name.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.name() == name);
        found.ok_or_else(|| "must be \"read\", \"operate\", \"write\" or \"admin\"".to_owned())
    }
}

/// Resources that a token reaches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources(Vec<Pattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    All,
    Kind(Kind),
    One(Kind, String),
}

impl Resources {
    /// Every resource, declared or not.
    pub fn all() -> Self {
        Self(vec![Pattern::All])
    }

    /// Reads `*`, `queue.*` and `limit.psp`; the first text that is none of these is the error.
    pub fn new(texts: &[String]) -> Result<Self, String> {
        if texts.is_empty() {
            return Err("must not be empty; leave it out for every resource".to_owned());
        }
        texts.iter().map(|text| Pattern::read(text)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether this resource is among them.
    pub(crate) fn has(&self, kind: Kind, name: &str) -> bool {
        self.0.iter().any(|pattern| match pattern {
            Pattern::All => true,
            Pattern::Kind(known) => *known == kind,
            Pattern::One(known, one) => *known == kind && one == name,
        })
    }

    fn has_all(&self) -> bool {
        self.0.contains(&Pattern::All)
    }

    /// The first one that `schema` does not declare, and what was probably meant.
    fn undeclared(&self, schema: &Schema) -> Option<String> {
        self.0.iter().find_map(|pattern| match pattern {
            Pattern::One(kind, name) if schema.resource(*kind, name).is_none() => {
                let near = schema.nearest(*kind, name);
                let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
                Some(format!("the schema has no {kind} {name:?}{near}"))
            }
            _ => None,
        })
    }
}

impl Pattern {
    fn read(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::All);
        }
        let wrong = || {
            format!(
                "{} is not a resource such as \"limit.psp\", all of a kind such as \"queue.*\", or \"*\"",
                excerpt(text)
            )
        };
        let (kind, name) = text.split_once('.').ok_or_else(wrong)?;
        let kind: Kind = kind.parse().map_err(|_| {
            let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            let near = nearest(kind, kinds.iter().copied());
            let near = near.map_or_else(|| kinds.join(", "), |near| format!("did you mean \"{near}\"?"));
            format!("{}: there is no kind {}; {near}", excerpt(text), excerpt(kind))
        })?;
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        match name {
            "*" => Ok(Self::Kind(kind)),
            name if !name.is_empty() && name.bytes().all(word) => Ok(Self::One(kind, name.to_owned())),
            _ => Err(wrong()),
        }
    }
}

/// A bearer token with its rights. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    secret: String,
    name: String,
    role: Role,
    resources: Resources,
}

impl Token {
    /// A token of every resource; its text comes from the environment.
    pub fn new(secret: String, role: Role) -> Self {
        Self { secret, name: String::new(), role, resources: Resources::all() }
    }

    /// The same under a name, for logs and refusals.
    #[must_use]
    pub fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// The same, for these resources alone.
    #[must_use]
    pub fn reaching(self, resources: Resources) -> Self {
        Self { resources, ..self }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn secret(&self) -> &[u8] {
        self.secret.as_bytes()
    }

    /// Why it does not fit the schema, if it does not.
    pub(crate) fn misfit(&self, schema: &Schema) -> Option<String> {
        let why = self.resources.undeclared(schema)?;
        Some(format!("server.tokens.resources of {}: {why}", excerpt(&self.name)))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

/// What somebody who was let in may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rights<'a> {
    role: Role,
    token: Option<&'a Token>,
}

impl<'a> Rights<'a> {
    /// Those of a caller without a token.
    pub(crate) fn anonymous(role: Role) -> Self {
        Self { role, token: None }
    }

    /// Those of whoever has opened the store: nobody stands between.
    pub(crate) fn owner() -> Self {
        Self::anonymous(Role::Admin)
    }

    pub(crate) fn of(token: &'a Token) -> Self {
        Self { role: token.role, token: Some(token) }
    }

    /// The token they come from.
    pub(crate) fn token(self) -> Option<&'a Token> {
        self.token
    }

    /// Whether no resource is out of reach.
    pub(crate) fn reach_all(self) -> bool {
        self.token.is_none_or(|token| token.resources.has_all())
    }

    /// Whether this resource is within reach.
    pub(crate) fn reach(self, kind: Kind, name: &str) -> bool {
        self.token.is_none_or(|token| token.resources.has(kind, name))
    }

    /// Refuses a call that needs a higher role.
    pub(crate) fn need(self, role: Role) -> Result<(), Problem> {
        self.need_for("this call", role)
    }

    /// Refuses `what` if it needs a higher role.
    pub(crate) fn need_for(self, what: &str, role: Role) -> Result<(), Problem> {
        if self.role >= role {
            return Ok(());
        }
        let (wanted, has) = (role.name(), self.role.name());
        let detail = match self.token {
            Some(token) => {
                format!(
                    "{what} needs the role \"{wanted}\"; the token {} has \"{has}\"",
                    excerpt(&token.name)
                )
            }
            None => format!(
                "{what} needs the role \"{wanted}\"; callers without a token have \"{has}\" (anonymous in [server])"
            ),
        };
        Err(Problem::new(Code::AuthForbidden, detail).field("authorization"))
    }

    /// Refuses a resource that is out of reach.
    pub(crate) fn need_resource(self, kind: Kind, name: &str) -> Result<(), Problem> {
        if self.reach(kind, name) {
            return Ok(());
        }
        let name = excerpt(name);
        Err(self.out_of_reach(&format!("{kind}.{}", name.trim_matches('"'))))
    }

    /// Refuses whoever does not reach every resource, for the sake of `what`.
    pub(crate) fn need_all(self, what: &str) -> Result<(), Problem> {
        if self.reach_all() { Ok(()) } else { Err(self.out_of_reach(&format!("{what}, which needs \"*\""))) }
    }

    /// Refuses a resource that is out of reach, or whose declaration names one that is.
    pub(crate) fn need_declared(self, schema: &Schema, kind: Kind, name: &str) -> Result<(), Problem> {
        if self.reach_all() {
            return Ok(());
        }
        let (mut found, mut next) = (vec![(kind, name)], 0);
        while let Some((kind, name)) = found.get(next).copied() {
            self.need_resource(kind, name)?;
            for named in declared(schema, kind, name) {
                if !found.contains(&named) {
                    found.push(named);
                }
            }
            next += 1;
        }
        Ok(())
    }

    fn out_of_reach(self, what: &str) -> Problem {
        let name = excerpt(self.token.map_or("", |token| &token.name));
        let detail = format!("the token {name} does not reach {what}");
        Problem::new(Code::AuthResource, detail).field("authorization")
    }
}

/// The resources that a declaration names and that calls on the resource write: the parts of a guard, the queue of a
/// batch, and where a queue's results go.
fn declared<'s>(schema: &'s Schema, kind: Kind, name: &str) -> Vec<(Kind, &'s str)> {
    let Some(resource) = schema.resource(kind, name) else { return Vec::new() };
    match &resource.spec {
        Spec::Guard(guard) => {
            let limits = guard.limits.iter().map(|name| (Kind::Limit, name.as_str()));
            let idempotency = guard.idempotency.iter().map(|name| (Kind::Idempotency, name.as_str()));
            let lock = guard.lock.iter().map(|name| (Kind::Lock, name.as_str()));
            limits.chain(idempotency).chain(lock).collect()
        }
        Spec::Batch(batch) => vec![(Kind::Queue, batch.to.as_str())],
        Spec::Queue(queue) => {
            let result = queue.push.as_ref().and_then(|push| push.result_to.as_ref());
            result.map(|(kind, name)| (*kind, name.as_str())).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use quaymaster::schema::{Source, load};

    const SCHEMA: &str = r#"
[schema]
name = "test"
owner = "tests"
[limit.psp]
key = "rl:{psp_id}"
algorithm = "fixed_window"
limit = 3
window = "60s"
[lock.door]
key = "door:{psp_id}"
ttl = "30s"
[guard.pay]
limits = ["psp"]
lock = "door"
[queue.jobs]
max_size = 10
push = { url = "http://localhost/", result_to = "batch.seen" }
[batch.seen]
by = "id"
window = "90s"
to = "out"
[queue.out]
max_size = 10
push = { url = "http://localhost/", result_to = "queue.jobs" }
"#;

    fn token(resources: &[&str]) -> Token {
        let resources: Vec<String> = resources.iter().map(ToString::to_string).collect();
        Token::new("secret".into(), Role::Write)
            .named("ci".into())
            .reaching(Resources::new(&resources).unwrap())
    }

    #[test]
    fn what_a_declaration_names_is_needed_too_and_a_circle_ends() {
        let loaded = load(&[Source { name: "test.toml", text: SCHEMA }], &|_| None);
        let schema = loaded.schema.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        let refused = |resources: &[&str], kind, name| {
            let token = token(resources);
            let told = Rights::of(&token).need_declared(&schema, kind, name);
            told.map_err(|problem| (problem.code, problem.detail.into_owned()))
        };
        let lacks = |what: &str| Err((Code::AuthResource, format!("the token \"ci\" does not reach {what}")));
        assert_eq!(refused(&["guard.*", "limit.psp", "lock.door"], Kind::Guard, "pay"), Ok(()));
        assert_eq!(refused(&["guard.*", "limit.psp"], Kind::Guard, "pay"), lacks("lock.door"));
        assert_eq!(refused(&["guard.*", "lock.*"], Kind::Guard, "pay"), lacks("limit.psp"));
        assert_eq!(refused(&["limit.*", "lock.*"], Kind::Guard, "pay"), lacks("guard.pay"));
        assert_eq!(refused(&["queue.jobs"], Kind::Queue, "jobs"), lacks("batch.seen"));
        assert_eq!(refused(&["queue.jobs", "batch.*"], Kind::Queue, "jobs"), lacks("queue.out"));
        assert_eq!(refused(&["queue.*", "batch.*"], Kind::Queue, "jobs"), Ok(()));
        assert_eq!(refused(&["*"], Kind::Queue, "jobs"), Ok(()));
        assert_eq!(refused(&["queue.other"], Kind::Queue, "none"), lacks("queue.none"));
        assert_eq!(token(&["limit.psp", "queue.*"]).misfit(&schema), None);
        let misfit = token(&["queue.*", "limit.pspp"]).misfit(&schema).unwrap();
        assert!(misfit.ends_with("the schema has no limit \"pspp\"; did you mean \"psp\"?"), "{misfit}");
    }

    #[test]
    fn a_list_of_resources_is_read_or_refused() {
        let read = |text: &str| Resources::new(&[text.to_owned()]);
        assert!(read("*").unwrap().has_all() && !read("queue.*").unwrap().has_all());
        let jobs = read("queue.jobs").unwrap();
        assert!(jobs.has(Kind::Queue, "jobs"));
        assert!(!jobs.has(Kind::Queue, "job") && !jobs.has(Kind::Limit, "jobs"));
        for wrong in
            ["", "queue", "queue.", "queue.a*", "queue.a.b", "*.*", "*.jobs", "Queue.jobs", "queue. jobs"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read("qeue.jobs").unwrap_err().contains("did you mean \"queue\"?"));
        assert!(Resources::new(&[]).is_err());
    }

    #[test]
    fn a_role_may_what_those_before_it_may() {
        for (at, has) in Role::ALL.into_iter().enumerate() {
            for (least, wanted) in Role::ALL.into_iter().enumerate() {
                let token = Token::new("secret".into(), has);
                assert_eq!(Rights::of(&token).need(wanted).is_ok(), at >= least, "{has:?} {wanted:?}");
                assert_eq!(Rights::anonymous(has).need(wanted).is_ok(), at >= least, "{has:?} {wanted:?}");
            }
            assert_eq!(Role::named(has.name()), Ok(has));
        }
        assert!(Role::named("owner").is_err());
    }

    #[test]
    fn a_token_is_not_shown() {
        assert!(!format!("{:?}", Token::new("s3cret".into(), Role::Read)).contains("s3cret"));
    }
}
