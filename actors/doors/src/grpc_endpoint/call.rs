//! Handles the requests of `mcplite.MCPLite`: list tools, call a tool, or call a tool with partial
//! messages.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{Stream, stream};
use mgp_grpc::exact::{Struct, StructError, StructErrorKind};
use mgp_grpc::mcplite::mcp_lite_server::McpLite;
use mgp_grpc::mcplite::{self, Empty, ResponseMeta, ToolRequest, ToolResponse, ToolsList};
use mgp_grpc::tonic::{self, Code, Request, Response, Status};
use mgp_json::{Splice, member, quote};
use mgp_protocol::lite::ResponseType;
use mgp_runtime::trace::Trace;
use mgp_transports::UnreadResponse;
use tokio::time::Instant;

use super::listing;
use super::metadata::CallMetadata;
use super::reply::{error_status, new_status};
use crate::http_endpoint::read_trace;
use crate::lite::Lite;
use crate::lite::LiteCaller;
use crate::lite::call::{LiteAnswer, LiteCall, LiteEvent, RunningLiteCall};
use mgp_callers::ForwardedHeaders;

/// The longest result on the wire, in bytes. A number takes eleven there, which may be two as text.
const RESULT_LONGEST: usize = 64 << 20;

/// Members of `_meta` that a `ResponseMeta` has a field for.
const META_FIELDS: [&str; 4] = [
    "response_type",
    "timestamp",
    "processing_time_ms",
    "promise_token",
];

/// One request and its caller.
#[derive(Debug)]
pub(super) struct RpcCall {
    pub(super) lite: Arc<Lite>,
    pub(super) caller: LiteCaller,
    pub(super) metadata: CallMetadata,
    /// The time it arrived.
    pub(super) began_at: Instant,
    /// The longest arguments as JSON text, in bytes.
    pub(super) arguments_max: usize,
    pub(super) forwarded: Mutex<Option<ForwardedHeaders>>,
    /// Counts its answer until it is encoded, which waits for the reader.
    pub(super) unread: Arc<Mutex<UnreadResponse>>,
}

#[tonic::async_trait]
impl McpLite for RpcCall {
    async fn get_tools(&self, _: Request<Empty>) -> Result<Response<ToolsList>, Status> {
        let list = self.lite.list_tools(&self.caller).await;
        let list = list.map_err(|refused| error_status(&refused))?;
        let list = std::str::from_utf8(&list).unwrap_or_default();
        Ok(Response::new(listing::to_tools_list(list)))
    }

    async fn call_tool(
        &self,
        request: Request<ToolRequest>,
    ) -> Result<Response<ToolResponse>, Status> {
        let mut running = self.begin_call(&request, false)?;
        loop {
            if let LiteEvent::Done(outcome) = running.next().await {
                let answer = outcome.map_err(|refused| error_status(&refused))?;
                let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
                let counted = unread.split_off(answer.result.len());
                *unread = counted;
                return Ok(Response::new(final_response(answer)?));
            }
        }
    }

    type CallToolStreamStream = ToolResponses;

    async fn call_tool_stream(
        &self,
        request: Request<ToolRequest>,
    ) -> Result<Response<ToolResponses>, Status> {
        let running = self.begin_call(&request, true)?;
        let responses = stream::unfold(Some(running), async |running| {
            let mut running = running?;
            Some(match running.next().await {
                LiteEvent::Partial(value) => {
                    let partial = partial_response(&value);
                    let rest = partial.is_ok().then_some(running);
                    (partial, rest)
                }
                LiteEvent::Done(Ok(answer)) => (final_response(answer), None),
                LiteEvent::Done(Err(refused)) => (Err(error_status(&refused)), None),
            })
        });
        Ok(Response::new(Box::pin(responses)))
    }
}

/// The messages of a stream. The next one is pulled when the client has capacity; dropping the stream
/// cancels the call.
type ToolResponses = Pin<Box<dyn Stream<Item = Result<ToolResponse, Status>> + Send>>;

impl RpcCall {
    fn begin_call(
        &self,
        request: &Request<ToolRequest>,
        stream: bool,
    ) -> Result<RunningLiteCall, Status> {
        let params = self.call_params(request.get_ref())?;
        let trace = read_trace(
            request.metadata().as_ref(),
            Trace::from_params(Some(&params), None),
        );
        let mut forwarded = self
            .forwarded
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(self.lite.start_call(LiteCall {
            caller: self.caller.clone(),
            trace,
            params: params.into(),
            stream,
            wait: self.metadata.lite_wait(stream),
            deadline: self.metadata.deadline(self.began_at),
            forwarded: forwarded.take(),
        }))
    }

    /// Renders the params of the equivalent `tools/call`.
    fn call_params(&self, request: &ToolRequest) -> Result<String, Status> {
        let arguments = match &request.arguments {
            Some(arguments) => arguments.to_json(self.arguments_max),
            None => Ok("{}".into()),
        };
        let arguments = arguments.map_err(|error| {
            let message = format!("Invalid arguments: {error}");
            inexact_status(&error, Code::InvalidArgument, &message)
        })?;
        let name = quote(&request.name);
        Ok(match &self.metadata.meta {
            Some(meta) => format!(r#"{{"name":{name},"arguments":{arguments},"_meta":{meta}}}"#),
            None => format!(r#"{{"name":{name},"arguments":{arguments}}}"#),
        })
    }
}

/// Converts a partial result (A.4).
fn partial_response(value: &[u8]) -> Result<ToolResponse, Status> {
    let value = std::str::from_utf8(value).unwrap_or("null");
    Ok(ToolResponse {
        result: Some(to_struct(&format!(r#"{{"partial":{value}}}"#))?),
        meta: None,
    })
}

/// Converts the answer; `_meta` contains the members that `ResponseMeta` has no field for.
fn final_response(answer: LiteAnswer) -> Result<ToolResponse, Status> {
    let result = std::str::from_utf8(&answer.result).unwrap_or("{}");
    let mut splice = Splice::new(result);
    if let Some(meta) = member(result, "_meta") {
        splice.remove_members(meta, &META_FIELDS);
    }
    let meta = ResponseMeta {
        response_type: to_proto_type(answer.response_type).into(),
        promise_token: answer.promise.unwrap_or_default(),
        timestamp: i64::try_from(answer.timestamp_ms).unwrap_or(i64::MAX),
        processing_time_ms: i32::try_from(answer.processing_time_ms).unwrap_or(i32::MAX),
    };
    Ok(ToolResponse {
        result: Some(to_struct(&splice.finish())?),
        meta: Some(meta),
    })
}

/// Maps to the four values of the document (A-17).
fn to_proto_type(kind: ResponseType) -> mcplite::ResponseType {
    match kind {
        ResponseType::Answer => mcplite::ResponseType::Answer,
        ResponseType::Promise => mcplite::ResponseType::Promise,
        ResponseType::Elicitation | ResponseType::MoreResource => {
            mcplite::ResponseType::Elicitation
        }
        ResponseType::Failure => mcplite::ResponseType::Failure,
    }
}

/// Converts a result. The call took effect even if its result cannot be encoded.
fn to_struct(result: &str) -> Result<Struct, Status> {
    Struct::from_json(result, RESULT_LONGEST).map_err(|error| {
        let message =
            format!("the tool was called, but its result cannot be encoded for gRPC: {error}");
        inexact_status(&error, Code::Internal, &message)
    })
}

fn inexact_status(error: &StructError, code: Code, message: &str) -> Status {
    match error.why {
        StructErrorKind::TooLong(_) => {
            new_status(Code::ResourceExhausted, "MESSAGE_TOO_LARGE", message)
        }
        StructErrorKind::Ambiguous(_)
        | StructErrorKind::Rounded(_)
        | StructErrorKind::NotFinite(_)
        | StructErrorKind::TooDeep
        | StructErrorKind::DuplicateMember(_)
        | StructErrorKind::Malformed(_)
        | StructErrorKind::NotAnObject(_) => new_status(code, "NOT_EXACT", message),
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

    /// LITE-057, LITE-058: members with a field are sent there, and the others in `_meta` as over HTTP.
    #[test]
    fn answer_contains_each_member_once() {
        let result = r#"{"content":[],"_meta":{"response_type":"promise","timestamp":"t","processing_time_ms":1,"promise_token":"p","expires_at":"e"}}"#;
        let response = final_response(answer(ResponseType::Promise, result)).unwrap();
        let meta = response.meta.unwrap();
        assert_eq!(meta.response_type, 1);
        assert_eq!(
            (&*meta.promise_token, meta.timestamp),
            ("p", 1_704_110_400_000)
        );
        assert_eq!(meta.processing_time_ms, i32::MAX);
        let result = response.result.unwrap().to_json(1000).unwrap();
        assert_eq!(result, r#"{"content":[],"_meta":{"expires_at":"e"}}"#);
        for (kind, number) in [
            (ResponseType::Answer, 0),
            (ResponseType::Elicitation, 2),
            (ResponseType::MoreResource, 2),
            (ResponseType::Failure, 3),
        ] {
            let meta = final_response(answer(kind, "{}")).unwrap().meta.unwrap();
            assert_eq!(meta.response_type, number, "{kind:?}");
        }
    }

    /// LITE-075: a result is exact or an error, never rounded.
    #[test]
    fn result_is_exact_or_an_error() {
        let status = final_response(answer(ResponseType::Answer, r#"{"n":9007199254740993}"#));
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        assert!(status.message().contains("9007199254740993"), "{status}");
        let partial = partial_response(br#""a""#).unwrap();
        assert!(partial.meta.is_none());
        assert_eq!(
            partial.result.unwrap().to_json(100).unwrap(),
            r#"{"partial":"a"}"#
        );
    }
}
