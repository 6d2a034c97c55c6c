//! A call that its server says may be tried again is tried again, where the server negotiated that with
//! the kernel (MGP §14.6).

use mgp_runtime::randomness;
use std::sync::Arc;

use bytestring::ByteString;
use mgp_engine::calls::retries::{CallAttempt, Retries, RetryDecision};
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::mgp::audit::{EventType, Outcome as Ending, Target};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::refusal::mgp::PeerError;
use mgp_protocol::splice::{Splice, quoted};

use super::forward::Outgoing;
use super::{Relay, granting};
use mgp_callers::request::{Outcome, Request};
use mgp_runtime::time::moment;
use mgp_servers::link::Link;
use mgp_store::audit::{by_agent, by_operator, event};

impl Relay {
    /// Forwards a call of a tool until it is done, or nothing more is to be tried. Before each try
    /// [`Self::forward`] looks again whether it may still be made.
    pub(super) async fn retrying(&self, request: &Request, outgoing: Outgoing<'_>) -> Outcome {
        let mut tries = None;
        loop {
            let outcome = self.forward(request, outgoing).await;
            let Err(Refusal::Peer(error)) = &outcome else {
                return outcome;
            };
            let Some((told, link)) = self.told(&outgoing, PeerError::read(error)) else {
                return outcome;
            };
            let tries = tries.get_or_insert_with(|| begun(request, &outgoing, &link));
            // Spreads the waits of many callers.
            let [chance] = randomness::bytes();
            match tries.failed(&told, chance, moment()) {
                RetryDecision::GiveUp(_) => return outcome,
                RetryDecision::Retry(attempt) => {
                    self.tell_of(request, &outgoing, &attempt);
                    tokio::select! {
                        () = tokio::time::sleep(attempt.at.since(moment())) => {}
                        () = request.exchange.cancelled() => return Err(Refusal::Cancelled),
                        () = self.closing.cancelled() => return outcome,
                    }
                }
                RetryDecision::Fallback(own) => {
                    return self
                        .fall_back(request, &outgoing, &own)
                        .await
                        .unwrap_or(outcome);
                }
            }
        }
    }

    /// Calls the other tool. `None` when that did not do either: the error of the tool that was asked
    /// for is then reported as it came, and nothing is told of one the caller may not call.
    async fn fall_back(
        &self,
        request: &Request,
        outgoing: &Outgoing<'_>,
        own: &str,
    ) -> Option<Outcome> {
        let other = self.fallback(request, outgoing, own)?;
        let outcome = Box::pin(self.call_tool(&other)).await;
        matches!(outcome, Ok(_) | Err(Refusal::Cancelled)).then_some(outcome)
    }

    /// What the server says about trying again, when it may say so: plain MCP knows no such thing.
    fn told(
        &self,
        outgoing: &Outgoing<'_>,
        error: Option<PeerError>,
    ) -> Option<(PeerError, Arc<Link>)> {
        let link = self.servers.load().get(outgoing.server)?.link()?;
        link.mgp().says_codes().then_some((error?, link))
    }

    /// MGP-212: one event for each try after the first.
    fn tell_of(&self, request: &Request, outgoing: &Outgoing<'_>, attempt: &CallAttempt) {
        let caller = &request.caller;
        let actor = match caller.operator {
            true => by_operator(),
            false => by_agent(caller.agent.as_str()),
        };
        let target = Target {
            server_id: Some(outgoing.server.to_string()),
            tool_name: outgoing.tool.map(|tool| tool.own_name.to_string()),
            agent_id: None,
        };
        let details = attempt.details().into();
        let kind = EventType::TOOL_RETRIED;
        self.audit.tell(event(
            kind,
            actor,
            target,
            &request.trace.id,
            Ending::Failure,
            details,
        ));
    }

    /// The same call of another tool of the same server, which the caller must see; it passes all the
    /// checks of any call.
    fn fallback(&self, request: &Request, outgoing: &Outgoing<'_>, own: &str) -> Option<Request> {
        let view = &request.caller.view;
        let name = match view {
            CatalogView::All => format!("{}:{own}", outgoing.server),
            CatalogView::One(_) => own.to_owned(),
        };
        let tool = self.tool(view, &name)?;
        // What the kernel itself would do under that name is no server's to ask for.
        let own = granting::method(&request.caller, &name).is_some();
        if own || tool.server != *outgoing.server || !request.exchange.falls_back() {
            return None;
        }
        let mut splice = Splice::new(outgoing.params);
        splice.replace(outgoing.edit.0, quoted(&name));
        Some(Request {
            caller: request.caller.clone(),
            exchange: request.exchange.clone(),
            method: request.method.clone(),
            params: Some(ByteString::from(splice.finish().into_owned())),
            trace: request.trace.clone(),
        })
    }
}

fn begun(request: &Request, outgoing: &Outgoing<'_>, link: &Link) -> Retries {
    let own = outgoing.tool.map_or("", |tool| &tool.own_name);
    let retries = Retries::new(own, moment() + link.limits.call_timeout_max);
    match request.exchange.has_fallen_back() {
        true => retries.of_fallback(),
        false => retries,
    }
}
