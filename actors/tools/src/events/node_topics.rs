//! The table of what agents follow at servers of other nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use mgp_engine::tools::events::Topic;
use mgp_protocol::ids::ServerId;

use mgp_runtime::task::SupervisedTask;
use mgp_servers::link::FollowEvent;

/// A topic by the name that an agent's server has here.
pub(super) type NodeTopic = (ServerId, Topic);

/// News of a topic that is followed at another node.
#[derive(Debug)]
pub struct NodeTopicEvent {
    /// The agent's name for the server.
    pub(super) server: ServerId,
    /// The number of the connection.
    pub(super) connection: u64,
    /// What is followed.
    pub(super) topic: Topic,
    /// Under which id: it is asked for anew under another one.
    pub(super) id: Arc<str>,
    /// How it goes.
    pub(super) event: FollowEvent,
}

/// The requests that are open at other nodes; as many as there are topics that somebody follows there.
#[derive(Debug, Default)]
pub(super) struct NodeTopics {
    open: BTreeMap<NodeTopic, OpenNodeTopic>,
    /// The agents' names for the servers, by the ids of the requests.
    by_id: HashMap<Arc<str>, ServerId>,
    /// Topics that ended with the connection to their server, until events arrive again or nobody follows them.
    broken: BTreeSet<NodeTopic>,
    last: u64,
}

/// A request; dropping it ends it at the owner, too.
#[derive(Debug)]
struct OpenNodeTopic {
    id: Arc<str>,
    is_confirmed: bool,
    _task: SupervisedTask<()>,
}

impl NodeTopics {
    /// The agent's name for the server whose event came under this id.
    pub(super) fn find_server(&self, id: &str) -> Option<&ServerId> {
        self.by_id.get(id)
    }

    /// An id for the next request.
    pub(super) fn next_id(&mut self) -> Arc<str> {
        self.last += 1;
        format!("node-{}", self.last).into()
    }

    /// It is asked for.
    pub(super) fn insert(&mut self, at: NodeTopic, id: &Arc<str>, task: SupervisedTask<()>) {
        self.by_id.insert(id.clone(), at.0.clone());
        let open = OpenNodeTopic {
            id: id.clone(),
            is_confirmed: false,
            _task: task,
        };
        if let Some(before) = self.open.insert(at, open) {
            self.by_id.remove(&before.id);
        }
    }

    /// Nobody follows it any more.
    pub(super) fn remove(&mut self, at: &NodeTopic) {
        self.broken.remove(at);
        if let Some(open) = self.open.remove(at) {
            self.by_id.remove(&open.id);
        }
    }

    /// The connection to a server has ended.
    pub(super) fn mark_broken(&mut self, server: &ServerId) {
        let of = self.open.keys().filter(|(key, _)| key.server() == *server);
        for at in of.cloned().collect::<Vec<_>>() {
            let told = self.open.get(&at).is_some_and(|open| open.is_confirmed);
            self.remove(&at);
            if told {
                self.broken.insert(at);
            }
        }
    }

    /// Gaps of topics without subscribers are forgotten.
    pub(super) fn retain_followed(&mut self, is_followed: impl Fn(&ServerId, &Topic) -> bool) {
        self.broken
            .retain(|(server, topic)| is_followed(server, topic));
    }

    /// Whether some events may be lost, where these are news of a request that is open; `None` where they are not.
    pub(super) fn confirm(&mut self, at: &NodeTopic, id: &str, news: FollowEvent) -> Option<bool> {
        let open = self.open.get_mut(at).filter(|open| *open.id == *id)?;
        match news {
            FollowEvent::Refused => Some(false),
            FollowEvent::Started { is_resumed: again } => {
                open.is_confirmed = true;
                Some(self.broken.remove(at) || again)
            }
        }
    }
}
