//! Tools of other nodes in the index: found by words, and by the vectors that their nodes made of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mgp_cluster::tool_index::{HeldTools, NamedNodes};
use mgp_engine::tools::catalog::ServerOffer;
use mgp_engine::tools::index::{ServerIndex, Vector};
use mgp_protocol::federation::tool_index::ToolVector;
use mgp_runtime::mailbox::Mailbox;
use mgp_sync::Snapshot;

use super::SearchMsg;

/// Changes of other nodes are read together when they come this close: pages of one copy do.
const COALESCE: Duration = Duration::from_millis(200);

/// What other nodes share, as the search reads it.
#[derive(Clone, Debug)]
pub struct RemoteTools {
    /// Their tools.
    pub held: Arc<Snapshot<HeldTools>>,
    /// What they are called here.
    pub names: Arc<Snapshot<NamedNodes>>,
}

impl RemoteTools {
    /// Of each tool of a server, the vector that came with it, where it is one of this model.
    pub(super) fn vectors(&self, offer: &ServerOffer, model: &str) -> Vec<Option<Arc<ToolVector>>> {
        let (held, names) = (self.held.load(), self.names.load());
        let server = offer.server().at_node().and_then(|(node, server)| {
            let node = names.names.get(node)?;
            held.servers.get(&node.server(server))
        });
        let vector = |name: &Arc<str>| {
            let vector = server?.tools.get(name)?.vector.clone();
            vector.filter(|vector| vector.model == model)
        };
        let tools = offer.tools().iter();
        tools.map(|tool| vector(&tool.own_name)).collect()
    }
}

/// As it is held against the vectors of this node. It was found to be of length 1 where it came in.
pub(super) fn vector(told: Option<&ToolVector>, dimension: Option<usize>) -> Option<Vector> {
    let told = told.filter(|told| Some(told.numbers.len()) == dimension)?;
    let numbers = told.numbers.iter().map(|number| number.cast_signed());
    Vector::from_parts(told.unit, &numbers.collect::<Vec<i8>>())
}

/// The vectors of a server's tools, as they are told to others.
pub(super) fn told(server: &ServerIndex, model: &str) -> BTreeMap<Arc<str>, ToolVector> {
    let told = server.vectors().map(|(name, vector)| {
        let (unit, numbers) = vector.parts();
        let told = ToolVector {
            model: model.to_owned(),
            unit,
            numbers: numbers
                .iter()
                .map(|number| number.cast_unsigned())
                .collect(),
        };
        (Arc::clone(name), told)
    });
    told.collect()
}

/// Has the search read what other nodes share whenever that changes.
pub(super) async fn follow(remote: RemoteTools, search: Mailbox<SearchMsg>) {
    loop {
        let (held, names) = (remote.held.load(), remote.names.load());
        // One that is being restarted reads everything then.
        let _ = search.tell(SearchMsg::Published);
        tokio::select! {
            () = held.replaced.cancelled() => {}
            () = names.replaced.cancelled() => {}
        }
        tokio::time::sleep(COALESCE).await;
    }
}

#[cfg(test)]
mod tests {
    use mgp_cluster::tool_index::{HeldServer, HeldTool};
    use mgp_engine::cluster::node_names::NodeNames;
    use mgp_engine::cluster::staleness::Stage;
    use mgp_engine::tools::catalog::ListKind;
    use mgp_protocol::federation::hello::NodeName;
    use mgp_protocol::federation::tool_index::ServerRecord;
    use mgp_protocol::ids::{NodeId, ServerId};
    use mgp_protocol::mgp::discovery::Status;

    use super::*;

    /// Only vectors of the model that is used here are taken, each for its own tool.
    #[test]
    fn vectors_of_another_model_say_nothing() {
        let node = NodeId([1; 32]);
        let mut names = NodeNames::default();
        names.called(node, &NodeName::parse("nas").unwrap(), []);
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
            let held = HeldTool {
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
        };
        let server = HeldServer {
            record,
            tools: [tool("ours", "m"), tool("theirs", "other")].into(),
            stage: Stage::Fresh,
        };
        let servers = [(node.server(ServerId::new("demo")), Arc::new(server))].into();
        let remote = RemoteTools {
            held: Arc::new(Snapshot::new(HeldTools {
                servers,
                ..HeldTools::default()
            })),
            names: Arc::new(Snapshot::new(NamedNodes {
                names,
                ..NamedNodes::default()
            })),
        };
        let definitions = ["ours", "theirs", "new"]
            .map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#));
        let offer = |server: &str| {
            ServerOffer::new(ServerId::new(server)).with(ListKind::Tools, &definitions)
        };
        let found = remote.vectors(&offer("nas/demo"), "m");
        assert_eq!(found, [Some(vector_of("m")), None, None]);
        assert_eq!(
            remote.vectors(&offer("attic/demo"), "m"),
            [None, None, None]
        );
        let held = vector(found[0].as_deref(), Some(2)).unwrap();
        assert_eq!(held.parts().1, [127, -127]);
        assert_eq!(vector(found[0].as_deref(), Some(384)), None);
        assert_eq!(vector(found[0].as_deref(), None), None);
    }
}
