//! Follows channels at servers of other nodes. Each is a separate request for one agent, so that the owner decides.
//! It is repeated when the link to the node broke, and its subscribers are notified of the gap.

use mgp_engine::tools::events::Topic;
use mgp_protocol::ids::{AgentId, ServerId};

use super::actor::EventsActor;
use super::entry::EventEntry;
use super::feeds::EventsState;
use super::node_topics::{NodeTopic, NodeTopicEvent};
use super::subscription::FeedKey;
use super::{EventsMsg, upstream};
use mgp_servers::link::{ChannelRequest, FollowEvent};

impl EventsActor {
    /// Follows a topic for the agent that knows the server by this name.
    pub(super) fn follow_node_topic(&self, state: &mut EventsState, node_topic: NodeTopic) {
        let (server, topic) = &node_topic;
        let Some(link) = upstream::find_link(&self.servers, server) else {
            return;
        };
        // The subscriber may have gone meanwhile.
        let Some(agent) = self.follower_agent(state, server, topic) else {
            return;
        };
        let id = state.node_topics.next_id();
        let request = ChannelRequest {
            agent,
            id: id.clone(),
            params: upstream::subscribe_params(topic),
        };
        let (mailbox, connection) = (state.mailbox.clone(), link.number);
        let ((server, topic), request_id) = (node_topic.clone(), id.clone());
        let task = link.follow_channel(request, move |event| {
            let event = NodeTopicEvent {
                server: server.clone(),
                connection,
                topic: topic.clone(),
                id: request_id.clone(),
                event,
            };
            let _ = mailbox.send_to_self(EventsMsg::NodeFollowing(Box::new(event)));
        });
        state.node_topics.insert(node_topic, &id, task);
    }

    /// The agent for which a topic of a server of another node is followed; all its subscribers belong to this agent.
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

    /// Handles the owner's response to a subscription to a topic.
    pub(super) fn handle_node_event(&self, state: &mut EventsState, event: NodeTopicEvent) {
        let node_topic = (event.server, event.topic);
        let Some(has_gap) = state
            .node_topics
            .confirm(&node_topic, &event.id, event.event)
        else {
            return;
        };
        let id = match event.event {
            FollowEvent::Started { .. } => Some(&*event.id),
            FollowEvent::Refused => None,
        };
        self.handle_answer(state, (&node_topic.0, event.connection), &node_topic.1, id);
        if has_gap {
            let entry = EventEntry::gap_notice(&node_topic.0, &node_topic.1);
            // The number of missed events is unknown: the gap counts as one.
            state.publish(&FeedKey::Server(node_topic.0, node_topic.1), &entry, 1);
        }
    }
}
