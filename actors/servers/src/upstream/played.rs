//! A request that an operator plays once more: in the server's own words and names, and answered in them.

use mgp_protocol::dialect::Era;
use mgp_protocol::jsonrpc;
use mgp_protocol::refusal::Refusal;

use super::Upstream;
use crate::link::{Call, MirroredHeaders};
use mgp_callers::request::{Outcome, Request};

/// What is played.
#[derive(Debug, Clone, Copy)]
pub struct PlayedRequest<'a> {
    /// It was asked in the modern era.
    pub modern: bool,
    /// The params, as JSON text.
    pub params: Option<&'a str>,
    /// What HTTP headers repeat of it.
    pub mirror: MirroredHeaders<'a>,
}

impl Upstream<'_> {
    /// Sends it. Questions of the server reach who plays.
    ///
    /// # Errors
    /// The server does not speak that era; whatever kept the answer from coming, or the server's own error.
    pub async fn play(&self, request: &Request, played: PlayedRequest<'_>) -> Outcome {
        let link = self.link(request).await?;
        let PlayedRequest {
            modern,
            params,
            mirror,
        } = played;
        let era = match modern {
            true => Era::Modern,
            false => Era::Legacy,
        };
        if link.peer_in(era).is_none() {
            let spoken = link.spoken().unwrap_or_default();
            return Err(Refusal::BadParams(format!(
                "it was recorded in another era than server {} speaks: {spoken}",
                self.id
            )));
        }
        let call = Call {
            caller: Some(&request.caller),
            exchange: &request.exchange,
            token: None,
            stream: None,
            reports: false,
            era,
            final_check: None,
            mirror,
            span: None,
            trace: Some(&request.trace),
        };
        let method = mirror.method;
        link.call(call, |id| jsonrpc::request(&id.to_string(), method, params))
            .await
    }
}
