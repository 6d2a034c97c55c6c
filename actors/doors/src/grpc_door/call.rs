//! One request of `mcplite.MCPLite`: lists tools, calls one, or calls one whose partial messages are read.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{Stream, stream};
use mgp_engine::tools::catalog::CatalogView;
use mgp_grpc::exact::{NotExact, Struct, Why};
use mgp_grpc::mcplite::mcp_lite_server::McpLite;
use mgp_grpc::mcplite::{self, Empty, ResponseMeta, ToolRequest, ToolResponse, ToolsList};
use mgp_grpc::tonic::{self, Code, Request, Response, Status};
use mgp_protocol::ids::AgentId;
use mgp_protocol::lite::ResponseType;
use mgp_protocol::splice::{Splice, member, quoted};
use mgp_runtime::trace::Trace;
use mgp_transports::unread::UnreadResponse;
use tokio::time::Instant;

use super::listing;
use super::reply::{error, status};
use super::terms::CallTerms;
use crate::http_door::traced;
use crate::lite::Lite;
use crate::lite::call::{LiteAnswer, LiteCall, LiteEvent, RunningLite};
use mgp_callers::exchange::forwarded::ForwardedHeaders;

/// Longest result on the wire, in bytes. A number takes eleven there, which may be two as text.
const RESULT_LONGEST: usize = 64 << 20;

/// Members of `_meta` that a `ResponseMeta` has a field for.
const IN_META: [&str; 4] = [
    "response_type",
    "timestamp",
    "processing_time_ms",
    "promise_token",
];

/// One request, and whose it is.
#[derive(Debug)]
pub(super) struct RpcCall {
    pub(super) lite: Arc<Lite>,
    pub(super) agent: AgentId,
    /// What it sees.
    pub(super) view: CatalogView,
    pub(super) terms: CallTerms,
    /// When it began.
    pub(super) began: Instant,
    /// Longest arguments as JSON text, in bytes.
    pub(super) longest: usize,
    pub(super) forwarded: Mutex<Option<ForwardedHeaders>>,
    /// Counts its answer while that waits to be encoded, for as long as nobody reads.
    pub(super) unread: Arc<Mutex<UnreadResponse>>,
}

#[tonic::async_trait]
impl McpLite for RpcCall {
    async fn get_tools(&self, _: Request<Empty>) -> Result<Response<ToolsList>, Status> {
        let list = self.lite.tools(&self.agent, &self.view).await;
        let list = list.map_err(|refused| error(&refused))?;
        let list = std::str::from_utf8(&list).unwrap_or_default();
        Ok(Response::new(listing::tools(list)))
    }

    async fn call_tool(
        &self,
        request: Request<ToolRequest>,
    ) -> Result<Response<ToolResponse>, Status> {
        let mut running = self.begin(&request, false)?;
        loop {
            if let LiteEvent::Done(outcome) = running.next().await {
                let answer = outcome.map_err(|refused| error(&refused))?;
                let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
                let counted = unread.take(answer.result.len());
                *unread = counted;
                return Ok(Response::new(response(answer)?));
            }
        }
    }

    type CallToolStreamStream = ToolResponses;

    async fn call_tool_stream(
        &self,
        request: Request<ToolRequest>,
    ) -> Result<Response<ToolResponses>, Status> {
        let running = self.begin(&request, true)?;
        let responses = stream::unfold(Some(running), async |running| {
            let mut running = running?;
            Some(match running.next().await {
                LiteEvent::Partial(value) => {
                    let partial = partial(&value);
                    let rest = partial.is_ok().then_some(running);
                    (partial, rest)
                }
                LiteEvent::Done(Ok(answer)) => (response(answer), None),
                LiteEvent::Done(Err(refused)) => (Err(error(&refused)), None),
            })
        });
        Ok(Response::new(Box::pin(responses)))
    }
}

/// The messages of a stream. It is asked for the next one when the client has room for it; dropping it cancels the
/// call.
type ToolResponses = Pin<Box<dyn Stream<Item = Result<ToolResponse, Status>> + Send>>;

impl RpcCall {
    fn begin(&self, request: &Request<ToolRequest>, stream: bool) -> Result<RunningLite, Status> {
        let params = self.params(request.get_ref())?;
        let trace = traced(request.metadata().as_ref(), Trace::of(Some(&params), None));
        let mut forwarded = self
            .forwarded
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(self.lite.call(LiteCall {
            agent: self.agent.clone(),
            view: self.view.clone(),
            trace,
            params: params.into(),
            stream,
            wait: self.terms.wait(stream),
            deadline: self.terms.deadline(self.began),
            forwarded: forwarded.take(),
        }))
    }

    /// The params of the `tools/call` that it is.
    fn params(&self, request: &ToolRequest) -> Result<String, Status> {
        let arguments = match &request.arguments {
            Some(arguments) => arguments.to_json(self.longest),
            None => Ok("{}".into()),
        };
        let arguments = arguments.map_err(|no| {
            let words = format!("Invalid arguments: {no}");
            refused(&no, Code::InvalidArgument, &words)
        })?;
        let name = quoted(&request.name);
        Ok(match &self.terms.meta {
            Some(meta) => format!(r#"{{"name":{name},"arguments":{arguments},"_meta":{meta}}}"#),
            None => format!(r#"{{"name":{name},"arguments":{arguments}}}"#),
        })
    }
}

/// A part of the result (A.4).
fn partial(value: &[u8]) -> Result<ToolResponse, Status> {
    let value = std::str::from_utf8(value).unwrap_or("null");
    Ok(ToolResponse {
        result: Some(told(&format!(r#"{{"partial":{value}}}"#))?),
        meta: None,
    })
}

/// The answer, whose `_meta` keeps what a `ResponseMeta` has no field for.
fn response(answer: LiteAnswer) -> Result<ToolResponse, Status> {
    let result = std::str::from_utf8(&answer.result).unwrap_or("{}");
    let mut splice = Splice::new(result);
    if let Some(meta) = member(result, "_meta") {
        splice.remove_members(meta, &IN_META);
    }
    let meta = ResponseMeta {
        response_type: kind(answer.response_type).into(),
        promise_token: answer.promise.unwrap_or_default(),
        timestamp: i64::try_from(answer.timestamp_ms).unwrap_or(i64::MAX),
        processing_time_ms: i32::try_from(answer.processing_time_ms).unwrap_or(i32::MAX),
    };
    Ok(ToolResponse {
        result: Some(told(&splice.finish())?),
        meta: Some(meta),
    })
}

/// The document has four words here (A-17).
fn kind(kind: ResponseType) -> mcplite::ResponseType {
    match kind {
        ResponseType::Answer => mcplite::ResponseType::Answer,
        ResponseType::Promise => mcplite::ResponseType::Promise,
        ResponseType::Elicitation | ResponseType::MoreResource => {
            mcplite::ResponseType::Elicitation
        }
        ResponseType::Failure => mcplite::ResponseType::Failure,
    }
}

/// A result for the wire. What was done stays done when it cannot be told.
fn told(result: &str) -> Result<Struct, Status> {
    Struct::from_json(result, RESULT_LONGEST).map_err(|no| {
        let words = format!("the tool was called, but its result cannot be told over gRPC: {no}");
        refused(&no, Code::Internal, &words)
    })
}

fn refused(no: &NotExact, code: Code, words: &str) -> Status {
    match no.why {
        Why::TooLong(_) => status(Code::ResourceExhausted, "MESSAGE_TOO_LARGE", words),
        Why::Ambiguous(_)
        | Why::Rounded(_)
        | Why::NotFinite(_)
        | Why::TooDeep
        | Why::Twice(_)
        | Why::Malformed(_)
        | Why::NotAnObject(_) => status(code, "NOT_EXACT", words),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn answer(response_type: ResponseType, result: &'static str) -> LiteAnswer {
        LiteAnswer {
            response_type,
            result: Bytes::from_static(result.as_bytes()),
            promise: Some("p".into()),
            timestamp_ms: 1_704_110_400_000,
            processing_time_ms: u64::MAX,
        }
    }

    /// LITE-057, LITE-058: what has a field is told there, and the rest in `_meta` as over HTTP.
    #[test]
    fn an_answer_tells_each_thing_once() {
        let result = r#"{"content":[],"_meta":{"response_type":"promise","timestamp":"t","processing_time_ms":1,"promise_token":"p","expires_at":"e"}}"#;
        let told = response(answer(ResponseType::Promise, result)).unwrap();
        let meta = told.meta.unwrap();
        assert_eq!(meta.response_type, 1);
        assert_eq!(
            (&*meta.promise_token, meta.timestamp),
            ("p", 1_704_110_400_000)
        );
        assert_eq!(meta.processing_time_ms, i32::MAX);
        let said = told.result.unwrap().to_json(1000).unwrap();
        assert_eq!(said, r#"{"content":[],"_meta":{"expires_at":"e"}}"#);
        for (kind, number) in [
            (ResponseType::Answer, 0),
            (ResponseType::Elicitation, 2),
            (ResponseType::MoreResource, 2),
            (ResponseType::Failure, 3),
        ] {
            let meta = response(answer(kind, "{}")).unwrap().meta.unwrap();
            assert_eq!(meta.response_type, number, "{kind:?}");
        }
    }

    /// LITE-075: a result is exact or an error, never rounded.
    #[test]
    fn a_result_is_told_exactly_or_not_at_all() {
        let status = response(answer(ResponseType::Answer, r#"{"n":9007199254740993}"#));
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        assert!(status.message().contains("9007199254740993"), "{status}");
        let partial = partial(br#""a""#).unwrap();
        assert!(partial.meta.is_none());
        assert_eq!(
            partial.result.unwrap().to_json(100).unwrap(),
            r#"{"partial":"a"}"#
        );
    }
}
