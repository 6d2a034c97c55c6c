//! Follows channels at servers of other nodes. Each is a request of its own for one agent, so that the owner decides.
//! It is repeated when the link to the node broke, and its subscribers are notified of the gap.

use mgp_engine::tools::events::Topic;
use mgp_protocol::ids::{AgentId, ServerId};

use super::entry::EventEntry;
use super::feeds::EventsState;
use super::hub::EventsActor;
use super::node_topics::{NodeTopic, NodeTopicEvent};
use super::subscription::FeedKey;
use super::{EventsMsg, upstream};
use mgp_servers::link::{ChannelRequest, FollowEvent};

impl EventsActor {
    /// Follows a topic for the agent that knows the server by this name.
    pub(super) fn follow_node_topic(&self, state: &mut EventsState, at: NodeTopic) {
        let (server, topic) = &at;
        let Some(link) = upstream::find_link(&self.servers, server) else {
            return;
        };
        // One that has gone meanwhile leaves at once.
        let Some(agent) = self.follower_agent(state, server, topic) else {
            return;
        };
        let id = state.node_topics.next_id();
        let request = ChannelRequest {
            agent,
            id: id.clone(),
            params: upstream::subscribe_params(topic),
        };
        let (hub, life, told) = (state.mailbox.clone(), link.number, id.clone());
        let (server, topic) = at.clone();
        let task = link.follow_channel(request, move |news| {
            let news = NodeTopicEvent {
                server: server.clone(),
                connection: life,
                topic: topic.clone(),
                id: told.clone(),
                event: news,
            };
            let _ = hub.send_to_self(EventsMsg::NodeFollowing(Box::new(news)));
        });
        state.node_topics.insert(at, &id, task);
    }

    /// As whom a topic of a server of another node is followed: all its followers are of one agent.
    fn follower_agent(
        &self,
        state: &EventsState,
        server: &ServerId,
        topic: &Topic,
    ) -> Option<AgentId> {
        let mut followers = state.engine.followers(server, topic);
        followers.find_map(|number| {
            let agent = self.directory.get(state.engine.owner(number)?)?;
            agent.caller().map(|caller| caller.remote_identity())
        })
    }

    /// The owner of a server accepted or rejected a subscription to a topic.
    pub(super) fn handle_node_event(&self, state: &mut EventsState, news: NodeTopicEvent) {
        let at = (news.server, news.topic);
        let Some(gap) = state.node_topics.confirm(&at, &news.id, news.event) else {
            return;
        };
        let id = match news.event {
            FollowEvent::Started { .. } => Some(&*news.id),
            FollowEvent::Refused => None,
        };
        self.handle_answer(state, (&at.0, news.connection), &at.1, id);
        if gap {
            let entry = EventEntry::gap_notice(&at.0, &at.1);
            // The number of missed events is unknown: the gap counts as one.
            state.publish(&FeedKey::Server(at.0, at.1), &entry, 1);
        }
    }
}
