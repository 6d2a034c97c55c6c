//! What agents follow at servers of other nodes. Each channel is a request of its own for one agent, so that its owner
//! decides; it is made again by itself when the link to the node broke, and its followers are told of the gap.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use mgp_engine::tools::events::Topic;
use mgp_protocol::ids::{AgentId, ServerId};

use super::entry::EventEntry;
use super::feeds::EventsState;
use super::hub::EventsActor;
use super::subscription::FeedKey;
use super::{EventsMsg, upstream};
use mgp_runtime::task::SupervisedTask;
use mgp_servers::link::{ChannelRequest, FollowingNews};

/// A topic by the name that an agent's server has here.
type AtNode = (ServerId, Topic);

/// News of a topic that is followed at another node.
#[derive(Debug)]
pub struct NodeNews {
    /// The agent's name for the server.
    pub(super) server: ServerId,
    /// The number of the connection.
    pub(super) life: u64,
    /// What is followed.
    pub(super) topic: Topic,
    /// Under which id: it is asked for anew under another one.
    pub(super) id: Arc<str>,
    /// How it goes.
    pub(super) news: FollowingNews,
}

/// The requests that are open at other nodes; as many as there are topics that somebody follows there.
#[derive(Debug, Default)]
pub(super) struct FollowedAtNodes {
    open: BTreeMap<AtNode, OpenAtNode>,
    /// The agents' names for the servers, by the ids of the requests.
    by_id: HashMap<Arc<str>, ServerId>,
    /// Those that ended with the connection to their server, until they are told again or nobody follows them.
    broken: BTreeSet<AtNode>,
    last: u64,
}

/// A request; dropping it ends it at the owner, too.
#[derive(Debug)]
struct OpenAtNode {
    id: Arc<str>,
    told: bool,
    _task: SupervisedTask<()>,
}

impl FollowedAtNodes {
    /// The agent's name for the server whose event came under this id.
    pub(super) fn server_of(&self, id: &str) -> Option<&ServerId> {
        self.by_id.get(id)
    }

    fn enter(&mut self, at: AtNode, id: &Arc<str>, task: SupervisedTask<()>) {
        self.by_id.insert(id.clone(), at.0.clone());
        let open = OpenAtNode {
            id: id.clone(),
            told: false,
            _task: task,
        };
        if let Some(before) = self.open.insert(at, open) {
            self.by_id.remove(&before.id);
        }
    }

    /// Nobody follows it any more.
    pub(super) fn leave(&mut self, at: &AtNode) {
        self.broken.remove(at);
        if let Some(open) = self.open.remove(at) {
            self.by_id.remove(&open.id);
        }
    }

    /// The connection to a server is over.
    pub(super) fn lost(&mut self, server: &ServerId) {
        let of = self.open.keys().filter(|(key, _)| key.server() == *server);
        for at in of.cloned().collect::<Vec<_>>() {
            let told = self.open.get(&at).is_some_and(|open| open.told);
            self.leave(&at);
            if told {
                self.broken.insert(at);
            }
        }
    }

    /// What nobody follows any more is not remembered as broken.
    pub(super) fn forget(&mut self, is_followed: impl Fn(&ServerId, &Topic) -> bool) {
        self.broken
            .retain(|(server, topic)| is_followed(server, topic));
    }

    /// Whether some events may be lost, where these are news of a request that is open; `None` where they are not.
    fn agreed(&mut self, at: &AtNode, id: &str, news: FollowingNews) -> Option<bool> {
        let open = self.open.get_mut(at).filter(|open| *open.id == *id)?;
        match news {
            FollowingNews::Refused => Some(false),
            FollowingNews::Agreed { again } => {
                open.told = true;
                Some(self.broken.remove(at) || again)
            }
        }
    }
}

impl EventsActor {
    /// Follows a topic for the agent whose name for the server this is.
    pub(super) fn follow_at_node(&self, state: &mut EventsState, at: AtNode) {
        let (server, topic) = &at;
        let Some(link) = upstream::link(&self.servers, server) else {
            return;
        };
        // One that has gone meanwhile leaves at once.
        let Some(agent) = self.follower(state, server, topic) else {
            return;
        };
        state.at_nodes.last += 1;
        let id: Arc<str> = format!("node-{}", state.at_nodes.last).into();
        let request = ChannelRequest {
            agent,
            id: id.clone(),
            params: upstream::params(topic),
        };
        let (hub, life, told) = (state.me.clone(), link.number, id.clone());
        let (server, topic) = at.clone();
        let task = link.follow_channel(request, move |news| {
            let news = NodeNews {
                server: server.clone(),
                life,
                topic: topic.clone(),
                id: told.clone(),
                news,
            };
            let _ = hub.remind(EventsMsg::AtNode(Box::new(news)));
        });
        state.at_nodes.enter(at, &id, task);
    }

    /// As whom a topic of a server of another node is followed: all its followers are of one agent.
    fn follower(&self, state: &EventsState, server: &ServerId, topic: &Topic) -> Option<AgentId> {
        let mut followers = state.engine.followers(server, topic);
        followers.find_map(|number| {
            let agent = self.directory.get(state.engine.owner(number)?)?;
            agent.caller().map(|caller| caller.abroad())
        })
    }

    /// The owner of a server agreed to tell the events of a topic, or did not.
    pub(super) fn heard_of_node(&self, state: &mut EventsState, news: NodeNews) {
        let at = (news.server, news.topic);
        let Some(gap) = state.at_nodes.agreed(&at, &news.id, news.news) else {
            return;
        };
        let id = match news.news {
            FollowingNews::Agreed { .. } => Some(&*news.id),
            FollowingNews::Refused => None,
        };
        self.answered(state, (&at.0, news.life), &at.1, id);
        if gap {
            let entry = EventEntry::gap(&at.0, &at.1);
            // How many there were, nobody knows: one number stands for them.
            state.publish(&FeedKey::Server(at.0, at.1), &entry, 1);
        }
    }
}
