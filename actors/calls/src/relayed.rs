//! Requests of extensions, as they go to their servers.

use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::checks::access;
use mgp_callers::request::{Outcome, Request};
use mgp_servers::link::FinalCheck;
use mgp_servers::upstream::{HeaderParams, Outgoing, may_hold_mgp};

/// A request of an extension, as it goes to its server.
pub(crate) struct Relayed<'a> {
    pub(crate) server: &'a ServerId,
    /// What the caller must have access to, named as a tool is; without it, the server as a whole.
    pub(crate) tool: Option<&'a str>,
    pub(crate) method: &'a str,
    pub(crate) params: &'a str,
    /// A part of the params, and what stands there for the server.
    pub(crate) edit: (&'a str, &'a str),
    /// The answer to a caller without access.
    pub(crate) unknown: Refusal,
}

impl Relayed<'_> {
    /// Sends it if the caller has access.
    pub(crate) async fn send(self, cx: &Context, request: &Request) -> Outcome {
        let (caller, unknown) = (&request.caller, self.unknown.clone());
        let final_check = access::admit(cx, caller, self.server, self.tool, unknown)?;
        self.dispatch(cx, request, Some(&final_check)).await
    }

    /// Sends a request that is the kernel's own: the caller gets only what it has access to.
    pub(crate) async fn send_as_kernel(self, cx: &Context, request: &Request) -> Outcome {
        self.dispatch(cx, request, None).await
    }

    async fn dispatch(
        self,
        cx: &Context,
        request: &Request,
        final_check: Option<&dyn FinalCheck>,
    ) -> Outcome {
        let outgoing = Outgoing {
            tool: None,
            final_check,
            method: self.method,
            params: self.params,
            may_hold_mgp: may_hold_mgp(self.params),
            mcpl: None,
            edit: self.edit,
            token: progress_token(self.params)?,
            stream_options: None,
            header_params: HeaderParams::default(),
        };
        cx.upstream(self.server).send(request, outgoing).await
    }
}
