//! Subscribes to events at servers, and unsubscribes when no subscriber is left.

use std::sync::Arc;

use mgp_engine::tools::events::{EventsEffect, Topic};
use mgp_json::quote;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::events::{
    ChannelPattern, Filter, Severity, Subscribe, SubscribedAtServer, Unsubscribe,
};
use mgp_protocol::mgp::negotiation::Features;

use super::EventsMsg;
use mgp_runtime::{Mailbox, task};
use mgp_servers::link::Link;
use mgp_servers::{ResubscriptionGuard, ServerTable};

/// Longest subscription id that a server may assign, in bytes.
const ID_MAX: usize = 256;

/// The connection to a server or an instance of one, if it supports events.
pub(super) fn find_link(servers: &ServerTable, server: &ServerId) -> Option<Arc<Link>> {
    let servers = servers.load();
    let link = servers.get(&server.server())?.link_by_key(server)?;
    link.family_negotiating(Features::EVENTS).map(|_| link)
}

/// Executes the engine's requests to servers; `guard` is released once they have answered. A request for a disconnected
/// server is sent when it reconnects.
pub(super) fn apply_effects(
    servers: &ServerTable,
    events_actor: &Mailbox<EventsMsg>,
    effects: impl IntoIterator<Item = EventsEffect>,
    guard: &ResubscriptionGuard,
) {
    for effect in effects {
        match effect {
            EventsEffect::SubscribeUpstream { server, topic } => {
                if let Some(link) = find_link(servers, &server) {
                    subscribe(events_actor.clone(), link, (server, topic), guard.clone());
                }
            }
            EventsEffect::UnsubscribeUpstream { server, id } => {
                if let Some(link) = find_link(servers, &server) {
                    link.count_event_subscription(false);
                    unsubscribe(link, id.to_string());
                }
            }
            // The events actor executes these itself.
            EventsEffect::SubscribeRemote { .. }
            | EventsEffect::UnsubscribeRemote { .. }
            | EventsEffect::SubscriptionExtended(_) => {}
        }
    }
}

fn subscribe(
    events_actor: Mailbox<EventsMsg>,
    link: Arc<Link>,
    (server, topic): (ServerId, Topic),
    guard: ResubscriptionGuard,
) {
    task::spawn_detached("events.subscribe", async move {
        let _guard = guard;
        let params = subscribe_params(&topic);
        let response = send_request(&link, Subscribe::METHOD, &params).await;
        let id = response.and_then(|text| parse_subscription_id(&link, &text, &topic.channels));
        if id.is_some() {
            link.count_event_subscription(true);
        }
        let _ = events_actor.send_to_self(EventsMsg::ServerAnswered {
            server,
            connection: link.number,
            topic,
            id,
        });
    });
}

/// The params of the request to the server, or to the node that owns it.
pub(super) fn subscribe_params(topic: &Topic) -> String {
    let channel = quote(topic.channels.as_str());
    let filter = match topic.severity {
        Severity::Debug => String::new(),
        Severity::Info | Severity::Warning | Severity::Error | Severity::Critical => {
            let min_severity = Some(topic.severity);
            let filter = serde_json::to_string(&Filter { min_severity });
            format!(r#","filter":{}"#, filter.expect("a word is always JSON"))
        }
    };
    format!(r#"{{"channels":[{channel}]{filter}}}"#)
}

/// The server's id of the subscription, if it has such a channel.
fn parse_subscription_id(
    link: &Arc<Link>,
    response: &str,
    channels: &ChannelPattern,
) -> Option<String> {
    let SubscribedAtServer {
        subscribed,
        subscription_id,
    } = mcp::parse_params(Some(response)).ok()?;
    if subscription_id.len() > ID_MAX {
        link.log
            .push_note("mgp/events/subscribe: its subscription_id is too long");
        return None;
    }
    let is_requested = |name: &String| *name == channels.as_str() || channels.covers(name);
    if subscribed.iter().any(is_requested) {
        return Some(subscription_id);
    }
    unsubscribe(link.clone(), subscription_id);
    None
}

fn unsubscribe(link: Arc<Link>, id: String) {
    task::spawn_detached("events.unsubscribe", async move {
        let params = format!(r#"{{"subscription_id":{}}}"#, quote(&id));
        send_request(&link, Unsubscribe::METHOD, &params).await;
    });
}

/// The server's result; errors go to its log.
async fn send_request(link: &Arc<Link>, method: &str, params: &str) -> Option<String> {
    let version = link.family_negotiating(Features::EVENTS)?;
    match link.request_in(version, method, Some(params)).await {
        Ok(result) => String::from_utf8(result.to_vec()).ok(),
        Err(error) => {
            link.log.push_note(&format!("{method} {params}: {error}"));
            None
        }
    }
}
