//! Follows channels at servers of other nodes. Each is a request of its own for one agent, so that its owner decides; it
//! is made again by itself when the link to the node broke, and its followers are told of the gap.

use mgp_engine::tools::events::Topic;
use mgp_protocol::ids::{AgentId, ServerId};

use super::at_nodes::{AtNode, NodeNews};
use super::entry::EventEntry;
use super::feeds::EventsState;
use super::hub::EventsActor;
use super::subscription::FeedKey;
use super::{EventsMsg, upstream};
use mgp_servers::link::{ChannelRequest, FollowingNews};

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
        let id = state.at_nodes.next_id();
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
