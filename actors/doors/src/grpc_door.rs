//! The gRPC door: MCP-lite on the port of the HTTP door (MCP-lite 0.042, section 5), with the standard services for
//! health and reflection.
//!
//! A request is judged as one to `/mcp` is: Host and Origin before it comes here, then its token or certificate. It
//! sees what its agent may see. Health is told to everybody, as `/healthz` is.

mod call;
mod listing;
mod message;
mod reply;
mod terms;

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use mgp_engine::tools::catalog::CatalogView;
use mgp_grpc::SERVICE;
use mgp_grpc::mcplite::mcp_lite_server::McpLiteServer;
use mgp_grpc::mcplite::{Empty, ToolRequest};
use mgp_grpc::standing::{HEALTH, REFLECTION, REFLECTION_ALPHA, StandingServices};
use mgp_grpc::tonic::body::Body as RpcBody;
use mgp_grpc::tonic::codegen::Service;
use mgp_grpc::tonic::{Code, Status};
use mgp_protocol::ids::AgentId;
use mgp_transports::http::body::{ReplyBody, RequestBody};
use mgp_transports::http::server::HttpPeer;
use tokio::time::Instant;

use self::call::RpcCall;
use self::reply::{credentials_ended, reply, status};
use self::terms::CallTerms;
use crate::http_door::{HttpDoor, Unwelcome, unread, while_it_lasts};
use crate::lite::Lite;
use mgp_callers::credential::Credential;
use mgp_callers::request::{identity, refused};
use mgp_runtime::task;

/// The door of both: what is not gRPC goes to the HTTP door.
#[derive(Debug)]
pub struct GrpcDoor {
    http: Arc<HttpDoor>,
    standing: StandingServices,
}

impl GrpcDoor {
    /// A door beside that one, closed where MCP-lite is switched off.
    #[must_use]
    pub fn new(http: Arc<HttpDoor>) -> Arc<Self> {
        Arc::new(Self {
            http,
            standing: StandingServices::new(),
        })
    }

    /// Answers one request, of gRPC or not.
    pub async fn answer(
        self: Arc<Self>,
        request: Request<RequestBody>,
        peer: HttpPeer,
    ) -> Response<ReplyBody> {
        let lite = self.http.lite.as_ref();
        let Some(lite) = lite.filter(|_| is_grpc(request.headers())).cloned() else {
            return self.http.clone().answer(request, peer).await;
        };
        let http = self.http.clone();
        // It is large, and not to make every other request larger.
        let answering = Box::pin(self.respond(lite, request, peer));
        let answered = task::caught("grpc.respond", answering).await;
        let answer = answered.unwrap_or_else(|broken| {
            let words = refused(&broken).to_string();
            told(&status(Code::Internal, "INTERNAL_ERROR", &words))
        });
        http.answered(answer.status());
        answer
    }

    async fn respond(
        self: Arc<Self>,
        lite: Arc<Lite>,
        request: Request<RequestBody>,
        peer: HttpPeer,
    ) -> Response<ReplyBody> {
        if let Some(no) = misspoken(&request) {
            return no;
        }
        if request.uri().path().starts_with(HEALTH) {
            return self.stand(request).await;
        }
        let view = match terms::view(request.headers()) {
            Ok(view) => view,
            Err(refused) => return told(&refused),
        };
        let (auth, shown) = (&self.http.auth, peer.certificate.as_deref());
        let pass = match auth.judge(request.headers(), shown, &view).await {
            Ok(pass) => pass,
            Err(unwelcome) => return self.turned_away(&unwelcome, request.headers(), &view),
        };
        peer.proof.accept(pass.agent.as_str());
        let who = identity(&pass.agent, false, &view);
        if !self.http.reception.routes.knows(&view, &who) {
            let words = "no such set for this caller; `mgp sets list` shows the known ones";
            return told(&status(Code::NotFound, "NO_SUCH_SET", words));
        }
        let entering = pin!(self.enter(lite, request, (pass.agent.clone(), view)));
        let entered = while_it_lasts(&pass, entering).await;
        entered.unwrap_or_else(|| self.shut_out(&pass))
    }

    async fn enter(
        &self,
        lite: Arc<Lite>,
        request: Request<RequestBody>,
        who: (AgentId, CatalogView),
    ) -> Response<ReplyBody> {
        let path = request.uri().path();
        if [REFLECTION, REFLECTION_ALPHA]
            .iter()
            .any(|at| path.starts_with(at))
        {
            return self.stand(request).await;
        }
        if !is_ours(path) {
            let words = format!("no such method; the service is {SERVICE}, as reflection tells");
            return told(&status(Code::Unimplemented, "NO_SUCH_METHOD", &words));
        }
        self.serve(lite, request, who)
            .await
            .unwrap_or_else(|refused| told(&refused))
    }

    /// One call of our own service.
    async fn serve(
        &self,
        lite: Arc<Lite>,
        request: Request<RequestBody>,
        (agent, view): (AgentId, CatalogView),
    ) -> Result<Response<ReplyBody>, Status> {
        let began = Instant::now();
        let terms = CallTerms::read(request.headers())?;
        let bodies = &self.http.reception.bodies;
        let (head, body) = request.into_parts();
        let message = message::taken(body, bodies, &agent).await?;
        match head.uri.path().ends_with("/GetTools") {
            true => message::check::<Empty>(&message)?,
            false => message::check::<ToolRequest>(&message)?,
        }
        let budget = self.http.reception.directory.responses.budget(&agent);
        if budget.is_full() {
            let words = unread(&budget);
            return Err(status(Code::ResourceExhausted, "UNREAD", &words));
        }
        let held = Arc::new(Mutex::new(budget.count(0)));
        let call = RpcCall {
            forwarded: lite.forwarded(&head.headers).into(),
            lite,
            agent,
            view,
            terms,
            began,
            longest: bodies.longest(),
            unread: held.clone(),
        };
        let whole = Request::from_parts(head, RpcBody::new(ReplyBody::full(message)));
        let mut service = McpLiteServer::new(call).max_decoding_message_size(bodies.longest());
        match service.call(whole).await {
            Ok(response) => {
                let mut response = reply(response);
                let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
                let held = std::mem::replace(&mut *held, budget.count(0));
                response.body_mut().hold_unread(held);
                Ok(response)
            }
            Err(never) => match never {},
        }
    }

    /// A standing service. Its streams answer nothing in particular: they end with the door.
    async fn stand(&self, request: Request<RequestBody>) -> Response<ReplyBody> {
        match self.standing.answer(request.map(RpcBody::new)) {
            Some(answering) => reply(answering.await).map(ReplyBody::standing),
            None => told(&status(
                Code::Unimplemented,
                "NO_SUCH_METHOD",
                "no such method",
            )),
        }
    }

    fn turned_away(
        &self,
        unwelcome: &Unwelcome,
        headers: &HeaderMap,
        view: &CatalogView,
    ) -> Response<ReplyBody> {
        let (code, reason) = match unwelcome {
            Unwelcome::Scope => (Code::PermissionDenied, "SCOPE"),
            Unwelcome::NoCredentials
            | Unwelcome::Unreadable
            | Unwelcome::Invalid(_)
            | Unwelcome::Certificate(_)
            | Unwelcome::Expired(_) => (Code::Unauthenticated, "UNAUTHENTICATED"),
        };
        let mut response = told(&status(code, reason, &unwelcome.words()));
        let said = self.http.auth.refuse(unwelcome, headers, view);
        if let Some(challenge) = said.headers().get(WWW_AUTHENTICATE) {
            let headers = response.headers_mut();
            headers.insert(WWW_AUTHENTICATE, challenge.clone());
        }
        response
    }

    fn shut_out(&self, pass: &Credential) -> Response<ReplyBody> {
        drop(self.http.shut_out(pass));
        told(&credentials_ended())
    }
}

/// True for what says that it is gRPC, well or not.
fn is_grpc(headers: &HeaderMap) -> bool {
    kind(headers).is_some_and(|kind| kind.starts_with("application/grpc"))
}

fn kind(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE)?.to_str().ok()
}

/// The methods of the document: another one is not there, whoever asks.
fn is_ours(path: &str) -> bool {
    let method = path
        .strip_prefix('/')
        .and_then(|path| path.strip_prefix(SERVICE));
    matches!(method, Some("/GetTools" | "/CallTool" | "/CallToolStream"))
}

/// What no client of gRPC reads as a status, told as HTTP tells it.
fn misspoken(request: &Request<RequestBody>) -> Option<Response<ReplyBody>> {
    let (status, words) = if request.version() != Version::HTTP_2 {
        let words = "gRPC needs HTTP/2: by prior knowledge, or chosen in TLS; over HTTP/1.1 the same is at /mcp-lite/v1/";
        (StatusCode::HTTP_VERSION_NOT_SUPPORTED, words)
    } else if request.method() != Method::POST {
        (StatusCode::METHOD_NOT_ALLOWED, "gRPC is POST only")
    } else if !is_protobuf(request.headers()) {
        let words = "send `content-type: application/grpc`: messages are protobuf, and gRPC-Web is not spoken here";
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, words)
    } else {
        return None;
    };
    let mut response = Response::new(ReplyBody::full(format!("{words}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    Some(response)
}

fn is_protobuf(headers: &HeaderMap) -> bool {
    let kind = kind(headers).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    matches!(kind, "application/grpc" | "application/grpc+proto")
}

/// A status alone, without a message before it.
fn told(status: &Status) -> Response<ReplyBody> {
    status
        .clone()
        .into_http::<RpcBody>()
        .map(|_| ReplyBody::empty())
}
