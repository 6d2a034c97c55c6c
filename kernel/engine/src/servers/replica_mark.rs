//! Servers that are alike, by the word of their operators.

use mgp_protocol::federation::tool_index::{IndexRoot, ServerRecord};

use super::spec::{Reach, ReplicaRule, ServerSpec};

/// What is told of a server that is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaMark {
    /// What it is started as, hashed.
    pub specification: IndexRoot,
    /// It remembers its callers between calls.
    pub stateful: bool,
}

impl ReplicaMark {
    /// What another node tells of its server.
    #[must_use]
    pub fn told(record: &ServerRecord) -> Option<Self> {
        let specification = record.specification.filter(|_| record.replica)?;
        Some(Self {
            specification,
            stateful: record.stateful,
        })
    }
}

impl ServerSpec {
    /// The mark of a server of this node.
    #[must_use]
    pub fn mark(&self) -> Option<ReplicaMark> {
        let ReplicaRule::Replica { stateful } = self.replica else {
            return None;
        };
        Some(ReplicaMark {
            specification: specification(&self.reach)?,
            stateful,
        })
    }
}

/// Over what everybody on the machine can read: the command line or the address. Variables and headers hold
/// secrets, which are not told to other nodes, not even hashed; the folder differs from machine to machine.
fn specification(reach: &Reach) -> Option<IndexRoot> {
    let kind = match reach {
        Reach::Stdio { .. } => "stdio",
        Reach::Http { speaks, .. } => speaks.word(),
        Reach::Node(_) => return None,
    };
    let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 specification of a server");
    let words = reach.words();
    for word in [kind].into_iter().chain(words.iter().map(String::as_str)) {
        hasher
            .update(&(word.len() as u64).to_le_bytes())
            .update(word.as_bytes());
    }
    Some(IndexRoot(hasher.finalize().into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mgp_protocol::mgp::discovery::Status;

    use super::*;
    use crate::servers::spec::UrlProtocol;

    fn stdio(args: &[&str], env: &[(&str, &str)]) -> Reach {
        let env = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        Reach::Stdio {
            command: "it".into(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: env.collect(),
            inherit_env: Vec::new(),
            cwd: None,
        }
    }

    /// Secrets make no difference, or who holds the hash could try them; words are not run together.
    #[test]
    fn what_a_server_is_started_as_is_its_command_line() {
        let one = specification(&stdio(&["a", "b"], &[("TOKEN", "one")]));
        assert!(one.is_some());
        assert_eq!(one, specification(&stdio(&["a", "b"], &[("TOKEN", "two")])));
        for other in [&["a", "c"][..], &["ab"], &["a"], &["a b"]] {
            assert_ne!(one, specification(&stdio(other, &[])), "{other:?}");
        }
        let http = |url: &str| Reach::Http {
            url: url.into(),
            headers: BTreeMap::new(),
            speaks: UrlProtocol::Mcp,
        };
        assert_ne!(
            specification(&http("http://a/mcp")),
            specification(&http("http://b/mcp"))
        );
    }

    #[test]
    fn a_server_that_is_not_marked_is_no_replica_whatever_else_is_told() {
        let mut record = ServerRecord {
            state: Status::Connected,
            specification: Some(IndexRoot([1; 32])),
            replica: false,
            stateful: true,
            starting: false,
        };
        assert_eq!(ReplicaMark::told(&record), None);
        record.replica = true;
        assert!(ReplicaMark::told(&record).unwrap().stateful);
        record.specification = None;
        assert_eq!(ReplicaMark::told(&record), None);
    }
}
