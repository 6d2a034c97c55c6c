//! The topics that agents follow at servers of other nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use mgp_engine::tools::events::Topic;
use mgp_protocol::ids::ServerId;

use mgp_runtime::task::SupervisedTask;
use mgp_servers::link::FollowEvent;

/// A topic with the agent's name for its server.
pub(super) type NodeTopic = (ServerId, Topic);

/// An event of a topic that is followed at another node.
#[derive(Debug)]
pub struct NodeTopicEvent {
    /// The agent's name for the server.
    pub(super) server: ServerId,
    /// The number of the link.
    pub(super) connection: u64,
    /// The followed topic.
    pub(super) topic: Topic,
    /// The id of the request; a repeated request has a new one.
    pub(super) id: Arc<str>,
    pub(super) event: FollowEvent,
}

/// The open requests at other nodes, one for each topic with subscribers there.
#[derive(Debug, Default)]
pub(super) struct NodeTopics {
    open: BTreeMap<NodeTopic, OpenNodeTopic>,
    /// The agents' names for the servers, by the ids of the requests.
    by_id: HashMap<Arc<str>, ServerId>,
    /// Topics whose link was lost, until events arrive again or the topic has no subscribers.
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
    /// The agent's name for the server whose event has this id.
    pub(super) fn find_server(&self, id: &str) -> Option<&ServerId> {
        self.by_id.get(id)
    }

    pub(super) fn next_id(&mut self) -> Arc<str> {
        self.last += 1;
        format!("node-{}", self.last).into()
    }

    /// Adds a request.
    pub(super) fn insert(&mut self, topic: NodeTopic, id: &Arc<str>, task: SupervisedTask<()>) {
        self.by_id.insert(id.clone(), topic.0.clone());
        let open = OpenNodeTopic {
            id: id.clone(),
            is_confirmed: false,
            _task: task,
        };
        if let Some(before) = self.open.insert(topic, open) {
            self.by_id.remove(&before.id);
        }
    }

    /// Removes the request of a topic without subscribers.
    pub(super) fn remove(&mut self, topic: &NodeTopic) {
        self.broken.remove(topic);
        if let Some(open) = self.open.remove(topic) {
            self.by_id.remove(&open.id);
        }
    }

    /// Marks the topics of a server whose connection has ended.
    pub(super) fn mark_broken(&mut self, server: &ServerId) {
        let topics = self.open.keys().filter(|(key, _)| key.server() == *server);
        for topic in topics.cloned().collect::<Vec<_>>() {
            let is_confirmed = self.open.get(&topic).is_some_and(|open| open.is_confirmed);
            self.remove(&topic);
            if is_confirmed {
                self.broken.insert(topic);
            }
        }
    }

    /// Removes the gaps of topics without subscribers.
    pub(super) fn retain_followed(&mut self, is_followed: impl Fn(&ServerId, &Topic) -> bool) {
        self.broken
            .retain(|(server, topic)| is_followed(server, topic));
    }

    /// Applies an event of an open request. Returns whether events may be lost; `None` if the request is not open.
    pub(super) fn confirm(
        &mut self,
        topic: &NodeTopic,
        id: &str,
        event: FollowEvent,
    ) -> Option<bool> {
        let open = self.open.get_mut(topic).filter(|open| *open.id == *id)?;
        match event {
            FollowEvent::Refused => Some(false),
            FollowEvent::Started { is_resumed } => {
                open.is_confirmed = true;
                Some(self.broken.remove(topic) || is_resumed)
            }
        }
    }
}
