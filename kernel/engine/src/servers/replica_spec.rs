//! Replicas: servers whose operators marked them as equal.

use mgp_protocol::federation::tool_index::{IndexRoot, ServerRecord};

use super::spec::{ReplicaMode, ServerSpec, ServerTransport};

/// The published data of a server marked as a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaSpec {
    /// Hash of its command line or URL.
    pub spec_hash: IndexRoot,
    /// It keeps state of its callers between calls.
    pub stateful: bool,
}

impl ReplicaSpec {
    /// Of another node's server.
    #[must_use]
    pub fn from_record(record: &ServerRecord) -> Option<Self> {
        let spec_hash = record.specification.filter(|_| record.replica)?;
        Some(Self {
            spec_hash,
            stateful: record.stateful,
        })
    }
}

impl ServerSpec {
    /// Of this node's server.
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

/// Hashes only the command line or URL, which every user of the machine can read. Variables and headers hold secrets,
/// which do not leave the node, even hashed; the folder differs between machines.
fn hash_transport(transport: &ServerTransport) -> Option<IndexRoot> {
    let kind = match transport {
        ServerTransport::Stdio { .. } => "stdio",
        ServerTransport::Http { protocol, .. } => protocol.as_str(),
        ServerTransport::Node(_) => return None,
    };
    let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 specification of a server");
    let command_line = transport.render_command();
    for word in [kind]
        .into_iter()
        .chain(command_line.iter().map(String::as_str))
    {
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

    /// Secrets are not hashed, because the hash would allow guessing them; argument boundaries are.
    #[test]
    fn the_hash_covers_the_command_line_but_no_secrets() {
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
    fn an_unmarked_server_is_no_replica() {
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
