//! Methods of the operator that are also tools of the kernel, under the names of [`matches_method`], for
//! clients that can only call tools. Calls of others are not examined.

use std::borrow::Cow;

use bytestring::ByteString;
use mgp_callers::request::Request;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::audit::Replay;
use mgp_protocol::mgp::health::{Ping, Status};
use mgp_protocol::mgp::lifecycle::Shutdown;
use mgp_protocol::mgp::matches_method;

/// The methods that are tools here; those about access and servers are tools in `mgp_calls`.
pub(crate) const METHODS: [&str; 4] = [
    Ping::METHOD,
    Status::METHOD,
    Shutdown::METHOD,
    Replay::METHOD,
];

/// The method request that this tool call maps to; its arguments are the params.
#[must_use]
pub(crate) fn as_method_request(request: &Request) -> Option<Request> {
    if !request.caller.operator {
        return None;
    }
    let params = request.params.as_ref()?;
    // Nearly all calls are of servers' tools: only the name is read for those.
    let name: Cow<'_, str> =
        serde_json::from_slice(mgp_json::partial::first_member(params.as_bytes(), "name")?).ok()?;
    let method = METHODS
        .into_iter()
        .find(|method| matches_method(method, &name))?;
    let call: mcp::tools::Call<'_> = mcp::parse_params(Some(params)).ok()?;
    Some(Request {
        caller: request.caller.clone(),
        call: request.call.clone(),
        method: ByteString::from_static(method),
        params: call.arguments.map(|a| params.slice_ref(a.get())),
        trace: request.trace.clone(),
    })
}
