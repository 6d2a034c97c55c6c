//! Tools of other nodes in the index: found by words, and by the vectors that their nodes computed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mgp_cluster::{PeerServer, PeerTools, PublishedNames};
use mgp_engine::tools::index::{ServerIndex, Vector};
use mgp_protocol::federation::tool_index::ToolVector;
use mgp_protocol::ids::ServerId;
use mgp_runtime::Mailbox;
use mgp_sync::Snapshot;

use super::SearchMsg;

/// Changes of other nodes within this time are read together, as are pages of one copy.
const COALESCE: Duration = Duration::from_millis(200);

/// The tools that other nodes share.
#[derive(Clone, Debug)]
pub struct RemoteTools {
    /// The shared tools.
    pub tools: Arc<Snapshot<PeerTools>>,
    /// Their names on this node.
    pub names: Arc<Snapshot<PublishedNames>>,
}

impl RemoteTools {
    /// A server's offer from its node.
    pub(super) fn find_server(&self, server: &ServerId) -> Option<Arc<PeerServer>> {
        let (node, server) = server.remote_parts()?;
        let node = self.names.load().names.get(node)?;
        self.tools.load().servers.get(&node.server(server)).cloned()
    }
}

/// The vector that a tool's node sent, if it is one of this model.
pub(super) fn remote_vector<'a>(
    (server, model): (&'a PeerServer, &str),
    tool: &str,
) -> Option<&'a ToolVector> {
    let vector = server.tools.get(tool)?.vector.as_deref();
    vector.filter(|vector| vector.model == model)
}

/// Converts a vector for comparison with those of this node. Its length 1 was validated on arrival.
pub(super) fn to_vector(remote: Option<&ToolVector>, dimension: Option<usize>) -> Option<Vector> {
    let remote = remote.filter(|remote| Some(remote.numbers.len()) == dimension)?;
    let numbers = remote.numbers.iter().map(|number| number.cast_signed());
    Vector::from_parts(remote.unit, &numbers.collect::<Vec<i8>>())
}

/// The vectors of a server's tools in the form for other nodes.
pub(super) fn to_remote_vectors(
    server: &ServerIndex,
    model: &str,
) -> BTreeMap<Arc<str>, ToolVector> {
    let vectors = server.vectors().map(|(name, vector)| {
        let (unit, numbers) = vector.parts();
        let vector = ToolVector {
            model: model.to_owned(),
            unit,
            numbers: numbers
                .iter()
                .map(|number| number.cast_unsigned())
                .collect(),
        };
        (Arc::clone(name), vector)
    });
    vectors.collect()
}

/// Updates the index whenever the tools of other nodes change.
pub(super) async fn run_follower(remote: RemoteTools, search: Mailbox<SearchMsg>) {
    loop {
        let (tools, names) = (remote.tools.load(), remote.names.load());
        // A search that restarts reads everything anyway.
        let _ = search.send(SearchMsg::Published);
        tokio::select! {
            () = tools.replaced.cancelled() => {}
            () = names.replaced.cancelled() => {}
        }
        tokio::time::sleep(COALESCE).await;
    }
}

#[cfg(test)]
mod tests {
    use mgp_cluster::PeerTool;
    use mgp_engine::cluster::staleness::Stage;
    use mgp_engine::node_names::NodeNames;
    use mgp_protocol::federation::hello::NodeName;
    use mgp_protocol::federation::tool_index::ServerRecord;
    use mgp_protocol::ids::NodeId;
    use mgp_protocol::mgp::discovery::Status;

    use super::*;

    /// Only vectors of the model used here are accepted, each for its own tool.
    #[test]
    fn vectors_of_another_model_are_ignored() {
        let node = NodeId([1; 32]);
        let mut names = NodeNames::default();
        names.assign(node, &NodeName::parse("nas").unwrap(), []);
        let vector_of = |model: &str| {
            let (model, numbers) = (model.to_owned(), vec![127, 129]);
            let unit = 1.0 / (127.0_f32 * 2.0_f32.sqrt());
            Arc::new(ToolVector {
                model,
                unit,
                numbers,
            })
        };
        let tool = |name: &str, model: &str| {
            let held = PeerTool {
                definition: "{}".into(),
                idempotent: false,
                vector: Some(vector_of(model)),
            };
            (Arc::from(name), held)
        };
        let record = ServerRecord {
            state: Status::Connected,
            specification: None,
            replica: false,
            stateful: false,
            starting: false,
        };
        let server = PeerServer {
            record,
            tools: [tool("ours", "m"), tool("theirs", "other")].into(),
            stage: Stage::Fresh,
        };
        let servers = [(node.server(ServerId::new("demo")), Arc::new(server))].into();
        let remote = RemoteTools {
            tools: Arc::new(Snapshot::new(PeerTools {
                servers,
                ..PeerTools::default()
            })),
            names: Arc::new(Snapshot::new(PublishedNames {
                names,
                ..PublishedNames::default()
            })),
        };
        assert!(remote.find_server(&ServerId::new("attic/demo")).is_none());
        let server = remote.find_server(&ServerId::new("nas/demo")).unwrap();
        let found = ["ours", "theirs", "new"].map(|tool| remote_vector((&server, "m"), tool));
        assert_eq!(found, [Some(&*vector_of("m")), None, None]);
        let converted = to_vector(found[0], Some(2)).unwrap();
        assert_eq!(converted.parts().1, [127, -127]);
        assert_eq!(to_vector(found[0], Some(384)), None);
        assert_eq!(to_vector(found[0], None), None);
    }
}
