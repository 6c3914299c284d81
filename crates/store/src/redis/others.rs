//! Which other processes of ours use the same store.

use futures_util::future::try_join_all;

use crate::redis::Inner;
use crate::redis::resp::{self, words};
use crate::{Code, Result, Workload};

const OP: &str = "store.other_processes";

impl Inner {
    /// Names of connections of other processes; `None` where this user may not ask.
    pub(super) async fn other_processes(&self) -> Result<Option<Vec<String>>> {
        let (nodes, command) = (self.nodes(), words(["CLIENT", "LIST"]));
        let lists = match try_join_all(nodes.iter().map(|node| self.ask_node(OP, &command, node))).await {
            Err(error) if error.code == Code::StorePermission => return Ok(None),
            lists => lists?,
        };
        let own = (self.shared.options.client_name.as_str(), std::process::id());
        let mut names: Vec<String> =
            lists.iter().filter_map(resp::text).flat_map(|list| named(list, own)).collect();
        names.sort_unstable();
        names.dedup();
        Ok(Some(names))
    }
}

/// Names such as `quaymaster:queue:4711` in a list of clients, but for those of `own`, a client name and a process. In
/// containers many processes have the number 1: whoever must not take another for itself has a client name of its own.
fn named(list: &str, own: (&str, u32)) -> Vec<String> {
    let ours = |name: &&str| {
        let mut parts = name.rsplitn(3, ':');
        let process = parts.next().and_then(|number| number.parse::<u32>().ok());
        let workload =
            parts.next().is_some_and(|word| Workload::ALL.iter().any(|known| known.name() == word));
        let client = parts.next();
        workload && client.zip(process).is_some_and(|other| other != own)
    };
    let name =
        |line: &'_ str| line.split(' ').find_map(|field| field.strip_prefix("name=")).map(str::to_owned);
    list.lines().filter_map(name).filter(|name| ours(&name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_of_other_processes_of_ours_are_named() {
        let list = "id=3 addr=127.0.0.1:1 laddr=127.0.0.1:2 fd=8 name=quaymaster:default:7 age=1\n\
                    id=4 addr=127.0.0.1:1 name=psp:blocking:8 age=1 idle=0\n\
                    id=5 addr=127.0.0.1:1 name= age=1\n\
                    id=6 addr=127.0.0.1:1 name=app:web:9 age=1\n\
                    id=7 addr=127.0.0.1:1 name=quaymaster:default:x age=1\n";
        let one = Workload::ALL[1].name();
        let list = list.replace("blocking", one);
        let both = ["quaymaster:default:7".to_owned(), format!("psp:{one}:8")];
        assert_eq!(named(&list, ("quaymaster", 7)), both[1..]);
        assert_eq!(named(&list, ("psp", 8)), both[..1]);
        assert_eq!(named(&list, ("quaymaster-respell", 7)), both, "another process of the same number");
    }
}
