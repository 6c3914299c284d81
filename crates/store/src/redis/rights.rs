//! What the store's user may run, asked without running it: `ACL DRYRUN`, Redis 7 and newer.

use futures_util::future::try_join_all;

use crate::redis::resp::{self, words};
use crate::redis::{Inner, fault};
use crate::{Code, Error, Refused, Result, Words};

const RIGHTS: &str = "store.rights";

impl Inner {
    /// What one primary refuses is refused: users are every node's own.
    pub(super) async fn refused(&self, commands: &[Words]) -> Result<Option<Refused>> {
        let mut whole: Option<Refused> = None;
        for node in self.nodes() {
            let user = match self.ask_node(RIGHTS, &words(["ACL", "WHOAMI"]), &node).await {
                Ok(reply) => resp::text(&reply).unwrap_or_default().to_owned(),
                Err(error) => return unknown(error),
            };
            let asked = commands.iter().map(|command| {
                let mut dry = words(["ACL", "DRYRUN", &user]);
                for word in command.iter() {
                    dry.push(word);
                }
                let node = &node;
                async move { self.ask_node(RIGHTS, &dry, node).await }
            });
            let told = match try_join_all(asked).await {
                Ok(told) => told,
                Err(error) => return unknown(error),
            };
            let whole = whole.get_or_insert_with(|| Refused { user, commands: Vec::new() });
            for (index, reply) in told.iter().enumerate() {
                match resp::text(reply) {
                    Some("OK") | None => {}
                    Some(why) if whole.commands.iter().all(|(known, _)| *known != index) => {
                        whole.commands.push((index, fault::denied(why)));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(whole)
    }
}

/// A server without DRYRUN, or a user who may not ask, says nothing about the scripts.
fn unknown(error: Error) -> Result<Option<Refused>> {
    match error.code {
        Code::ScriptFailed | Code::StorePermission => Ok(None),
        _ => Err(error),
    }
}
