//! Servers that are alike, by the word of their operators.

use mgp_protocol::federation::tool_index::{IndexRoot, ServerRecord};

use super::spec::{ReplicaMode, ServerSpec, ServerTransport};

/// What is told of a server that is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaSpec {
    /// What it is started as, hashed.
    pub spec_hash: IndexRoot,
    /// It remembers its callers between calls.
    pub stateful: bool,
}

impl ReplicaSpec {
    /// What another node tells of its server.
    #[must_use]
    pub fn from_record(record: &ServerRecord) -> Option<Self> {
        let specification = record.specification.filter(|_| record.replica)?;
        Some(Self {
            spec_hash: specification,
            stateful: record.stateful,
        })
    }
}

impl ServerSpec {
    /// The mark of a server of this node.
    #[must_use]
    pub fn replica_spec(&self) -> Option<ReplicaSpec> {
        let ReplicaMode::Replica { stateful } = self.replica else {
            return None;
        };
        Some(ReplicaSpec {
            spec_hash: hash_transport(&self.transport)?,
            stateful,
        })
    }
}

/// Over what everybody on the machine can read: the command line or the address. Variables and headers hold
/// secrets, which are not told to other nodes, not even hashed; the folder differs from machine to machine.
fn hash_transport(reach: &ServerTransport) -> Option<IndexRoot> {
    let kind = match reach {
        ServerTransport::Stdio { .. } => "stdio",
        ServerTransport::Http {
            protocol: speaks, ..
        } => speaks.as_str(),
        ServerTransport::Node(_) => return None,
    };
    let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 specification of a server");
    let words = reach.render_command();
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

    fn stdio(args: &[&str], env: &[(&str, &str)]) -> ServerTransport {
        let env = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        ServerTransport::Stdio {
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
        let one = hash_transport(&stdio(&["a", "b"], &[("TOKEN", "one")]));
        assert!(one.is_some());
        assert_eq!(
            one,
            hash_transport(&stdio(&["a", "b"], &[("TOKEN", "two")]))
        );
        for other in [&["a", "c"][..], &["ab"], &["a"], &["a b"]] {
            assert_ne!(one, hash_transport(&stdio(other, &[])), "{other:?}");
        }
        let http = |url: &str| ServerTransport::Http {
            url: url.into(),
            headers: BTreeMap::new(),
            protocol: UrlProtocol::Mcp,
        };
        assert_ne!(
            hash_transport(&http("http://a/mcp")),
            hash_transport(&http("http://b/mcp"))
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
        assert_eq!(ReplicaSpec::from_record(&record), None);
        record.replica = true;
        assert!(ReplicaSpec::from_record(&record).unwrap().stateful);
        record.specification = None;
        assert_eq!(ReplicaSpec::from_record(&record), None);
    }
}
