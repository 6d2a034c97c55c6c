//! Replays a request for an operator, in the server's own format and names.

use mgp_engine::callers::request_ids::WireId;
use mgp_json::{Splice, member};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc;
use mgp_protocol::refusal::Refusal;

use super::Upstream;
use crate::link::{Call, MetadataHeaders};
use mgp_callers::request::{Outcome, Request};

/// The request to replay.
#[derive(Debug, Clone, Copy)]
pub struct ReplayedRequest<'a> {
    /// True if it was sent in the stateless family.
    pub is_stateless: bool,
    /// The params, as JSON text.
    pub params: Option<&'a str>,
    /// The progress token for the operator, as JSON; without one no progress is requested.
    pub token: Option<&'a str>,
    /// The HTTP headers that mirror it.
    pub metadata_headers: MetadataHeaders<'a>,
}

impl Upstream<'_> {
    /// Replays the request. Callbacks of the server reach the operator.
    ///
    /// # Errors
    /// The server does not speak that family; otherwise the reason why there is no answer, or the server's own
    /// error.
    pub async fn replay(&self, request: &Request, played: ReplayedRequest<'_>) -> Outcome {
        let link = self.link(request).await?;
        let ReplayedRequest {
            is_stateless: modern,
            params,
            token,
            metadata_headers: mirror,
        } = played;
        let family = if modern {
            ProtocolFamily::Stateless
        } else {
            ProtocolFamily::Legacy
        };
        if link.peer_for(family).is_none() {
            let spoken = link.render_versions().unwrap_or_default();
            return Err(Refusal::BadParams(format!(
                "it was recorded in another protocol version than server {} speaks: {spoken}",
                self.id
            )));
        }
        let call = Call {
            caller: Some(&request.caller),
            in_flight: &request.call,
            token,
            stream: None,
            mgp_progress: false,
            family,
            final_check: None,
            metadata_headers: mirror,
            span: None,
            trace: Some(&request.trace),
        };
        let method = mirror.method;
        let frame = |id: WireId| {
            let id = id.to_string();
            let reporting = token.map(|_| set_progress_token(params.unwrap_or("{}"), &id));
            jsonrpc::request(&id, method, reporting.as_deref().or(params))
        };
        link.call(call, frame).await
    }
}

/// The params with the kernel's own progress token.
fn set_progress_token(params: &str, token: &str) -> String {
    let mut splice = Splice::new(params);
    match member(params, "_meta") {
        Some(meta) => splice.insert_member(meta, "progressToken", token),
        None => splice.insert_member(params, "_meta", &format!(r#"{{"progressToken":{token}}}"#)),
    }
    splice.finish().into_owned()
}
