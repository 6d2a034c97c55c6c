//! MCP-lite over gRPC (§5). Messages are converted to JSON text and back exactly, or rejected.

mod details;
mod reply;
mod status;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::header::HeaderMap;
use ::http::{Request as HttpRequest, Response as HttpResponse, Uri};
use mgp_grpc::exact::Struct;
use mgp_grpc::mcplite::mcp_lite_client::McpLiteClient;
use mgp_grpc::mcplite::{Empty, Tool, ToolRequest, ToolResponse};
use mgp_grpc::tonic;
use mgp_json::{member, quote};
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::client::{Client, ClientError, H2Body, H2Client, parse_url};
use tower_service::Service;

use self::details::{ReadableBody, sanitize_details};
use self::reply::GrpcReply;
use super::LiteCall;
use super::partials::PartialReporter;
use crate::link::Link;

/// The metadata key that carries `_meta` of a call to other kernels; the messages have no field for it.
const META_KEY: &str = "mgp-meta";

/// The gRPC connection to one server.
#[derive(Debug)]
pub(super) struct LiteGrpc {
    client: H2Client<tonic::body::Body>,
    origin: Uri,
}

/// Sends the requests of a stub.
#[derive(Clone, Debug)]
struct H2Sender(H2Client<tonic::body::Body>);

impl Service<HttpRequest<tonic::body::Body>> for H2Sender {
    type Response = HttpResponse<ReadableBody<H2Body>>;
    type Error = ClientError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ClientError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ClientError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<tonic::body::Body>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move { Ok(sanitize_details(client.request(request).await?)) })
    }
}

impl LiteGrpc {
    /// Creates a connection to the service at this address.
    ///
    /// # Errors
    /// Why the address is invalid, as text.
    pub(super) fn new(client: &Client, url: &str) -> Result<Self, String> {
        let origin = parse_url(url).map_err(|why| why.to_string())?;
        if origin.query().is_some() {
            return Err("`url` of a gRPC server is an address, and has no `?`".into());
        }
        Ok(Self {
            client: client.h2_client(),
            origin,
        })
    }

    fn stub(&self, link: &Link) -> McpLiteClient<H2Sender> {
        let limit = link.limits.max_frame;
        McpLiteClient::with_origin(H2Sender(self.client.clone()), self.origin.clone())
            .max_decoding_message_size(limit)
            .max_encoding_message_size(limit)
    }

    /// The list of tools, in the JSON form of the HTTP binding.
    pub(super) async fn list(
        &self,
        link: &Arc<Link>,
        headers: &HeaderMap,
    ) -> Result<String, Refusal> {
        let mut stub = self.stub(link);
        let response = Box::pin(stub.get_tools(build_request(headers, Empty {})));
        let listed = response
            .await
            .map_err(|status| status::refusal_from_status(link, &status))?;
        let tools = listed.into_inner().tools;
        let tools = tools.iter().filter_map(|tool| to_tool_json(link, tool));
        Ok(format!("[{}]", tools.collect::<Vec<_>>().join(",")))
    }

    /// Calls a tool; the result in the JSON form of the HTTP binding, with `_meta`.
    pub(super) async fn call(
        &self,
        link: &Arc<Link>,
        request: LiteCall<'_>,
        partials: &mut PartialReporter<'_>,
    ) -> Result<String, Refusal> {
        let arguments = Struct::from_json(request.arguments, link.limits.max_frame)
            .map_err(|why| Refusal::BadParams(format!("arguments {why}")))?;
        let wanted = ToolRequest {
            name: request.name.to_owned(),
            arguments: Some(arguments),
        };
        let mut wanted = build_request(request.headers, wanted);
        if let Some(meta) = request.render_meta().and_then(|meta| meta.parse().ok()) {
            wanted.metadata_mut().insert(META_KEY, meta);
        }
        let mut stub = self.stub(link);
        let reply = if partials.is_wanted() {
            let stream = Box::pin(stub.call_tool_stream(wanted)).await;
            let stream = stream.map_err(|status| status::refusal_from_status(link, &status))?;
            Box::pin(read_last_message(link, stream.into_inner(), partials)).await?
        } else {
            let answered = Box::pin(stub.call_tool(wanted)).await;
            let answered = answered.map_err(|status| status::refusal_from_status(link, &status))?;
            answered.into_inner()
        };
        reply::render_result(link, &reply)
    }
}

/// The last message of a stream; the others are partial results or promise updates (§5.3).
async fn read_last_message(
    link: &Arc<Link>,
    mut stream: tonic::Streaming<ToolResponse>,
    partials: &mut PartialReporter<'_>,
) -> Result<ToolResponse, Refusal> {
    let mut last = None;
    loop {
        let message = stream.message().await;
        let message = message.map_err(|status| status::refusal_from_status(link, &status))?;
        let Some(message) = message else { break };
        partials.record_heartbeat();
        match GrpcReply::from_message(link, &message)? {
            GrpcReply::Partial(partial) => {
                // A stream whose last message has no `meta` consists of partial results only.
                partials.report(&partial);
            }
            GrpcReply::Whole => last = Some(message),
        }
    }
    last.ok_or_else(|| link.lost_refusal("its stream ended without its result"))
}

/// A message with the headers of every request.
fn build_request<T>(headers: &HeaderMap, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    *request.metadata_mut() = tonic::metadata::MetadataMap::from_headers(headers.clone());
    request
}

/// Converts a tool to the JSON form of the HTTP binding; one with an unreadable schema is logged and left out.
fn to_tool_json(link: &Link, tool: &Tool) -> Option<String> {
    let schema = tool.input_schema.as_ref();
    let schema = schema.map(|schema| schema.to_json(link.limits.max_frame));
    let schema = match schema.transpose() {
        Ok(schema) => schema.filter(|schema| schema != "{}"),
        Err(why) => {
            link.log
                .push_note(&format!("its tool {:?} is left out: {why}", tool.name));
            return None;
        }
    };
    let mut out = format!(
        r#"{{"name":{},"description":{}"#,
        quote(&tool.name),
        quote(&tool.description)
    );
    if !tool.r#type.is_empty() {
        out.push_str(&format!(r#","@type":{}"#, quote(&tool.r#type)));
    }
    if let Some(schema) = schema {
        out.push_str(&format!(r#","inputSchema":{schema}"#));
    }
    out.push('}');
    Some(out)
}

/// The partial result in a message of a stream.
fn parse_partial(result: &str) -> Option<String> {
    member(result, "partial").map(str::to_owned)
}
