//! `subscriptions/listen`: a stateless client hears of what it named until either side ends it (MCP
//! 2026-07-28, subscriptions).

use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp;
use mgp_protocol::mcp::meta::SUBSCRIPTION_ID;
use mgp_protocol::mcp::subscriptions::{Filter, Listen};
use mgp_protocol::refusal::Refusal;

use super::{Relay, required};
use crate::agent::Agent;
use crate::exchange::Class;
use crate::listener;
use crate::request::{Outcome, Request};

/// Resources one request may name, and tasks; a client that wants more listens twice.
const MAX_RESOURCES: usize = 1000;

impl Relay {
    /// Sends the client what it wants to hear; the answer comes when the kernel ends.
    ///
    /// # Errors
    /// [`Refusal::BadParams`]; [`Refusal::Cancelled`] when the client has heard enough.
    pub async fn listen(&self, request: &Request) -> Outcome {
        let Listen { notifications } = mcp::read(Some(required(request)?))?;
        if notifications.resource_subscriptions.len() > MAX_RESOURCES {
            return Err(Refusal::BadParams(format!(
                "`resourceSubscriptions` names more than {MAX_RESOURCES} resources; listen twice"
            )));
        }
        if notifications.task_ids.len() > MAX_RESOURCES {
            return Err(Refusal::BadParams(format!(
                "`taskIds` names more than {MAX_RESOURCES} tasks; listen twice"
            )));
        }
        let attempts = request.exchange.attempts();
        let id = attempts.ok_or_else(|| Refusal::UnknownMethod("subscriptions/listen".into()))?;
        let tag = format!(r#"{{"{SUBSCRIPTION_ID}":{}}}"#, id.id().as_json());
        let (wanted, resources) = self.agreed(request, notifications);
        let agent = Agent::listening(request, &wanted, &tag);
        let listener = listener::begin(&self.agents, &self.directory, &self.subscriptions, &agent);
        let _listener = listener.await?;
        let wanted = self.follow(&agent, wanted, resources).await;
        request
            .exchange
            .send(acknowledged(&wanted, &tag), Class::Kept);
        agent.set_ready();
        tokio::select! {
            () = request.exchange.cancelled() => Err(Refusal::Cancelled),
            () = self.closing.cancelled() => {
                Ok(format!(r#"{{"resultType":"complete","_meta":{tag}}}"#).into())
            }
        }
    }

    /// What the client will hear of what it wants, and whose the resources are.
    fn agreed(&self, request: &Request, mut wanted: Filter) -> (Filter, Vec<Resource>) {
        let own = |id: &String| self.tasks.find(&request.caller, id).is_some();
        wanted.task_ids.retain(own);
        let owned = |shown: &String| {
            let (server, own) = self.owner(request, shown).ok()?;
            let peers = &self.shown.load().peers;
            let can = peers.get(&server)?.capabilities.resources_subscribe;
            can.then(|| Resource {
                shown: shown.clone(),
                server,
                own,
            })
        };
        let resources: Vec<_> = wanted
            .resource_subscriptions
            .iter()
            .filter_map(owned)
            .collect();
        (wanted, resources)
    }

    /// Subscribes at the servers; what they refuse is not agreed to.
    async fn follow(&self, agent: &Agent, mut wanted: Filter, resources: Vec<Resource>) -> Filter {
        wanted.resource_subscriptions.clear();
        for Resource { shown, server, own } in resources {
            let subscribed = self
                .subscriptions
                .subscribe(agent.connection, server, own)
                .await;
            if subscribed.is_ok() {
                wanted.resource_subscriptions.push(shown);
            }
        }
        wanted
    }
}

/// A resource under the URI the client knows and under its server's own.
struct Resource {
    shown: String,
    server: ServerId,
    own: String,
}

fn acknowledged(wanted: &Filter, tag: &str) -> bytes::Bytes {
    let wanted = serde_json::to_string(wanted).expect("a filter is always JSON");
    let params = format!(r#"{{"notifications":{wanted},"_meta":{tag}}}"#);
    jsonrpc::notification("notifications/subscriptions/acknowledged", Some(&params)).into()
}
