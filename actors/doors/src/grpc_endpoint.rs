//! The gRPC endpoint: MCP-lite on the port of the HTTP endpoint (MCP-lite 0.042, section 5), with the
//! standard services for health and reflection.
//!
//! A request is checked like one to `/mcp`: first Host and Origin, then its token or certificate. The
//! visible tools are those of its agent. Health is public, like `/healthz`.

mod call;
mod listing;
mod metadata;
mod reply;
mod request_message;

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use mgp_engine::tools::catalog::CatalogView;
use mgp_grpc::mcplite::mcp_lite_server::McpLiteServer;
use mgp_grpc::mcplite::{Empty, ToolRequest};
use mgp_grpc::tonic::body::Body as RpcBody;
use mgp_grpc::tonic::codegen::Service;
use mgp_grpc::tonic::{Code, Status};
use mgp_grpc::{BuiltinServices, HEALTH_PATH, REFLECTION_ALPHA_PATH, REFLECTION_PATH, SERVICE};
use mgp_transports::http::body::{ReplyBody, RequestBody};
use mgp_transports::http::server::HttpPeer;
use tokio::time::Instant;

use self::call::RpcCall;
use self::metadata::CallMetadata;
use self::reply::{credentials_ended_status, new_status, to_reply};
use crate::http_endpoint::{
    AuthError, AuthRequest, HttpEndpoint, backpressure_message, run_until_credential_ends,
};
use crate::lite::Lite;
use crate::lite::LiteCaller;
use mgp_callers::Credential;
use mgp_callers::request::{identity, panic_refusal};
use mgp_runtime::task;

/// The combined service: requests that are not gRPC go to the HTTP endpoint.
#[derive(Debug)]
pub struct GrpcEndpoint {
    http: Arc<HttpEndpoint>,
    standing_services: BuiltinServices,
}

impl GrpcEndpoint {
    /// Adds the gRPC service to the HTTP endpoint; it is closed if MCP-lite is disabled.
    #[must_use]
    pub fn new(http: Arc<HttpEndpoint>) -> Arc<Self> {
        Arc::new(Self {
            http,
            standing_services: BuiltinServices::new(),
        })
    }

    /// Answers one request, gRPC or not.
    pub async fn handle(
        self: Arc<Self>,
        request: Request<RequestBody>,
        peer: HttpPeer,
    ) -> Response<ReplyBody> {
        let lite = self.http.lite.as_ref();
        let Some(lite) = lite.filter(|_| is_grpc(request.headers())).cloned() else {
            return self.http.clone().handle(request, peer).await;
        };
        let http = self.http.clone();
        // Boxed because it is large, and would make every other request larger.
        let answering = Box::pin(self.handle_grpc(lite, request, peer));
        let answered = task::catch_panic("grpc.respond", answering).await;
        let answer = answered.unwrap_or_else(|broken| {
            let message = panic_refusal(&broken).to_string();
            status_response(&new_status(Code::Internal, "INTERNAL_ERROR", &message))
        });
        http.count_response(answer.status());
        answer
    }

    async fn handle_grpc(
        self: Arc<Self>,
        lite: Arc<Lite>,
        request: Request<RequestBody>,
        peer: HttpPeer,
    ) -> Response<ReplyBody> {
        if let Some(no) = reject_malformed(&request) {
            return no;
        }
        if request.uri().path().starts_with(HEALTH_PATH) {
            return self.serve_standard_service(request).await;
        }
        let view = match metadata::parse_view(request.headers()) {
            Ok(view) => view,
            Err(refused) => return status_response(&refused),
        };
        let (auth, certificate) = (&self.http.auth, peer.certificate.as_deref());
        let pass = match auth
            .authenticate(AuthRequest::new(&request, certificate), &view)
            .await
        {
            Ok(pass) => pass,
            Err(unwelcome) => {
                return self.reject_unauthenticated(&unwelcome, request.headers(), &view);
            }
        };
        peer.auth.mark_authenticated(pass.agent.as_str());
        let principal = identity(&pass.agent, false, &view, &pass.groups);
        if !self.http.endpoint.routes.is_view_known(&view, &principal) {
            let message = "no such set for this caller; `mgp sets list` shows the known ones";
            return status_response(&new_status(Code::NotFound, "NO_SUCH_SET", message));
        }
        let entering = pin!(self.serve_in_context(lite, request, LiteCaller::new(&pass, view)));
        let entered = run_until_credential_ends(&pass, entering).await;
        entered.unwrap_or_else(|| self.reject_ended_credential(&pass))
    }

    async fn serve_in_context(
        &self,
        lite: Arc<Lite>,
        request: Request<RequestBody>,
        caller: LiteCaller,
    ) -> Response<ReplyBody> {
        let path = request.uri().path();
        if [REFLECTION_PATH, REFLECTION_ALPHA_PATH]
            .iter()
            .any(|at| path.starts_with(at))
        {
            return self.serve_standard_service(request).await;
        }
        if !is_mcp_lite_method(path) {
            let message = format!("no such method; the service is {SERVICE}, as reflection tells");
            return status_response(&new_status(Code::Unimplemented, "NO_SUCH_METHOD", &message));
        }
        self.serve_call(lite, request, caller)
            .await
            .unwrap_or_else(|refused| status_response(&refused))
    }

    /// Answers one call of the MCP-lite service.
    async fn serve_call(
        &self,
        lite: Arc<Lite>,
        request: Request<RequestBody>,
        caller: LiteCaller,
    ) -> Result<Response<ReplyBody>, Status> {
        let began = Instant::now();
        let terms = CallMetadata::parse(request.headers())?;
        let bodies = &self.http.endpoint.message_budgets;
        let (head, body) = request.into_parts();
        let message = request_message::read_message(body, bodies, &caller.agent).await?;
        if head.uri.path().ends_with("/GetTools") {
            request_message::check_message::<Empty>(&message)?
        } else {
            request_message::check_message::<ToolRequest>(&message)?
        }
        let budget = self.http.endpoint.directory.responses.budget(&caller.agent);
        if budget.is_full() {
            let message = backpressure_message(&budget);
            return Err(new_status(Code::ResourceExhausted, "UNREAD", &message));
        }
        let unread = Arc::new(Mutex::new(budget.count(0)));
        let call = RpcCall {
            forwarded: lite.forwarded_headers(&head.headers).into(),
            lite,
            caller,
            metadata: terms,
            began_at: began,
            arguments_max: bodies.message_max(),
            unread: unread.clone(),
        };
        let whole = Request::from_parts(head, RpcBody::new(ReplyBody::full(message)));
        let mut service = McpLiteServer::new(call).max_decoding_message_size(bodies.message_max());
        match service.call(whole).await {
            Ok(response) => {
                let mut response = to_reply(response);
                let mut unread = unread.lock().unwrap_or_else(PoisonError::into_inner);
                let unread = std::mem::replace(&mut *unread, budget.count(0));
                response.body_mut().set_unread(unread);
                Ok(response)
            }
            Err(never) => match never {},
        }
    }

    /// Answers a standard service. Its streams end with the endpoint.
    async fn serve_standard_service(&self, request: Request<RequestBody>) -> Response<ReplyBody> {
        match self.standing_services.handle(request.map(RpcBody::new)) {
            Some(answering) => to_reply(answering.await).map(ReplyBody::mark_long_lived),
            None => status_response(&new_status(
                Code::Unimplemented,
                "NO_SUCH_METHOD",
                "no such method",
            )),
        }
    }

    fn reject_unauthenticated(
        &self,
        unwelcome: &AuthError,
        headers: &HeaderMap,
        view: &CatalogView,
    ) -> Response<ReplyBody> {
        let (code, reason) = match unwelcome {
            AuthError::Scope => (Code::PermissionDenied, "SCOPE"),
            AuthError::NoCredentials
            | AuthError::Unreadable
            | AuthError::Invalid(_)
            | AuthError::Certificate(_)
            | AuthError::Proof(_)
            | AuthError::Expired(_) => (Code::Unauthenticated, "UNAUTHENTICATED"),
        };
        let mut response = status_response(&new_status(code, reason, &unwelcome.advice()));
        let refusal = self.http.auth.to_refusal(unwelcome, headers, view);
        if let Some(challenge) = refusal.headers().get(WWW_AUTHENTICATE) {
            let headers = response.headers_mut();
            headers.insert(WWW_AUTHENTICATE, challenge.clone());
        }
        response
    }

    fn reject_ended_credential(&self, pass: &Credential) -> Response<ReplyBody> {
        drop(self.http.reject_ended_credential(pass));
        status_response(&credentials_ended_status())
    }
}

/// True for a request that declares gRPC, well-formed or not.
fn is_grpc(headers: &HeaderMap) -> bool {
    content_type(headers).is_some_and(|kind| kind.starts_with("application/grpc"))
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE)?.to_str().ok()
}

/// The methods of the specification: any other is unknown to every caller.
fn is_mcp_lite_method(path: &str) -> bool {
    let method = path
        .strip_prefix('/')
        .and_then(|path| path.strip_prefix(SERVICE));
    matches!(method, Some("/GetTools" | "/CallTool" | "/CallToolStream"))
}

/// Rejects a request with an HTTP error, because no gRPC client would read a status.
fn reject_malformed(request: &Request<RequestBody>) -> Option<Response<ReplyBody>> {
    let (status, message) = if request.version() != Version::HTTP_2 {
        let message = "gRPC needs HTTP/2: by prior knowledge, or chosen in TLS; over HTTP/1.1 the same is at /mcp-lite/v1/";
        (StatusCode::HTTP_VERSION_NOT_SUPPORTED, message)
    } else if request.method() != Method::POST {
        (StatusCode::METHOD_NOT_ALLOWED, "gRPC is POST only")
    } else if !is_protobuf(request.headers()) {
        let message = "send `content-type: application/grpc`: messages are protobuf, and gRPC-Web is not supported";
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
    } else {
        return None;
    };
    let mut response = Response::new(ReplyBody::full(format!("{message}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    Some(response)
}

fn is_protobuf(headers: &HeaderMap) -> bool {
    let kind = content_type(headers).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    matches!(kind, "application/grpc" | "application/grpc+proto")
}

/// A response with a status and no message.
fn status_response(status: &Status) -> Response<ReplyBody> {
    status
        .clone()
        .into_http::<RpcBody>()
        .map(|_| ReplyBody::empty())
}
