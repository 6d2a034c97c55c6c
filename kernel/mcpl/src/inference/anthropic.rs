//! The messages of Anthropic.

use mgp_protocol::mcpl::inference::{FinishReason, PromptPart, PromptRole, PromptTurn, TokenUsage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::provider::{
    AnswerError, CONTENT_MAX, PartialAnswer, PromptOrder, ProviderAnswer, render_content,
    sanitize_model_name, unsupported_block,
};

/// The version of the format, in the header `anthropic-version`.
pub(super) const VERSION: &str = "2023-06-01";

pub(super) fn render_body(model: &str, order: &PromptOrder<'_>) -> Result<String, String> {
    // System prompts are not part of the turns there.
    let (system, turns): (Vec<_>, Vec<_>) = order
        .turns
        .iter()
        .partition(|turn| turn.role == PromptRole::System);
    if turns.is_empty() {
        return Err("`messages` holds no turn of a user".to_owned());
    }
    let messages: Result<Vec<Value>, String> = turns.into_iter().map(render_message).collect();
    let mut body = json!({
        "model": model,
        "max_tokens": order.max_tokens,
        "messages": messages?,
        "stream": order.stream,
    });
    if !system.is_empty() {
        let parts = system.into_iter().flat_map(|turn| &turn.parts);
        body["system"] = parts
            .map(render_part)
            .collect::<Result<Vec<Value>, String>>()?
            .into();
    }
    if let Some(temperature) = order.temperature {
        // The maximum is 1 there.
        body["temperature"] = temperature.min(1.0).into();
    }
    Ok(body.to_string())
}

fn render_message(turn: &PromptTurn) -> Result<Value, String> {
    let role = match turn.role {
        PromptRole::Assistant => "assistant",
        PromptRole::System | PromptRole::User => "user",
    };
    let content = render_content(turn, render_part)?;
    Ok(json!({"role": role, "content": content}))
}

fn render_part(part: &PromptPart) -> Result<Value, String> {
    match part {
        PromptPart::Text(text) => Ok(json!({"type": "text", "text": text})),
        PromptPart::Image { data, mime_type } => Ok(json!({"type": "image",
            "source": {"type": "base64", "media_type": mime_type, "data": data}})),
        PromptPart::Other(kind) => Err(unsupported_block(kind)),
    }
}

#[derive(Deserialize)]
struct WireMessage {
    #[serde(default)]
    content: Vec<Block>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    usage: Option<WireTokens>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
struct WireTokens {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    /// Cached input counts as input, and `input_tokens` does not include it.
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
}

impl WireTokens {
    fn input(self) -> Option<u64> {
        let cached = [
            self.cache_creation_input_tokens,
            self.cache_read_input_tokens,
        ];
        let cached = cached.into_iter().flatten().fold(0, u64::saturating_add);
        Some(self.input_tokens?.saturating_add(cached))
    }
}

/// Why it ended; no tools are offered, so any other reason is the model's own end.
fn parse_finish_reason(reason: &str) -> Result<FinishReason, AnswerError> {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => Ok(FinishReason::MaxTokens),
        "stop_sequence" => Ok(FinishReason::StopSequence),
        "refusal" => Err(AnswerError::Withheld),
        _ => Ok(FinishReason::EndTurn),
    }
}

pub(super) fn parse_answer(body: &[u8]) -> Result<ProviderAnswer, AnswerError> {
    #[derive(Deserialize)]
    struct Typed {
        #[serde(rename = "type")]
        kind: String,
    }
    let unreadable = |_| AnswerError::Unreadable;
    let typed: Typed = serde_json::from_slice(body).map_err(unreadable)?;
    match typed.kind.as_str() {
        "message" => {}
        "error" => return Err(super::provider::parse_error(body)),
        _ => return Err(AnswerError::Unreadable),
    }
    let read: WireMessage = serde_json::from_slice(body).map_err(unreadable)?;
    let finish = parse_finish_reason(read.stop_reason.as_deref().unwrap_or_default())?;
    let texts = read
        .content
        .into_iter()
        .filter(|block| block.kind == "text");
    let content: String = texts.filter_map(|block| block.text).collect();
    if content.len() > CONTENT_MAX {
        return Err(AnswerError::TooLong);
    }
    let usage = read.usage.and_then(|usage| {
        let (input_tokens, output_tokens) = usage.input().zip(usage.output_tokens)?;
        Some(TokenUsage {
            input_tokens,
            output_tokens,
        })
    });
    let model = read.model.as_deref().and_then(sanitize_model_name);
    Ok(ProviderAnswer {
        content,
        model,
        finish,
        usage,
    })
}

#[derive(Deserialize)]
struct StreamEvent {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: Option<WireMessage>,
    #[serde(default)]
    delta: Option<WireDelta>,
    #[serde(default)]
    usage: Option<WireTokens>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct WireDelta {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    stop_reason: Option<String>,
}

pub(super) fn parse_event(
    gathered: &mut PartialAnswer,
    data: &str,
) -> Result<Option<String>, AnswerError> {
    let read: StreamEvent = serde_json::from_str(data).map_err(|_| AnswerError::Unreadable)?;
    let mut count = |usage: Option<WireTokens>| {
        if let Some(usage) = usage {
            // Each event has the numbers so far.
            gathered.input = usage.input().or(gathered.input);
            gathered.output = usage.output_tokens.or(gathered.output);
        }
    };
    match read.kind.as_str() {
        "message_start" => {
            let message = read.message.ok_or(AnswerError::Unreadable)?;
            count(message.usage);
            gathered.set_model(message.model.as_deref());
            Ok(None)
        }
        "content_block_delta" => {
            let delta = read.delta.ok_or(AnswerError::Unreadable)?;
            let is_text = delta.kind.as_deref() == Some("text_delta");
            gathered.add(delta.text.filter(|_| is_text).unwrap_or_default())
        }
        "message_delta" => {
            count(read.usage);
            let reason = read.delta.and_then(|delta| delta.stop_reason);
            if let Some(reason) = reason {
                gathered.finish = Some(parse_finish_reason(&reason)?);
            }
            Ok(None)
        }
        "message_stop" => {
            gathered.done = true;
            Ok(None)
        }
        "error" => {
            let kind = read
                .error
                .as_ref()
                .and_then(|error| error.get("type")?.as_str());
            Err(AnswerError::from_code(kind))
        }
        // `ping`, block boundaries and unknown events are skipped.
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(role: PromptRole, text: &str) -> PromptTurn {
        PromptTurn {
            role,
            parts: vec![PromptPart::Text(text.to_owned())],
        }
    }

    #[test]
    fn a_prompt_is_written_as_anthropic_reads_it() {
        let image = PromptPart::Image {
            data: "QQ==".into(),
            mime_type: "image/png".into(),
        };
        let turns = [
            turn(PromptRole::System, "brief"),
            turn(PromptRole::User, "what is"),
            PromptTurn {
                role: PromptRole::User,
                parts: vec![image],
            },
            turn(PromptRole::System, "and kind"),
            turn(PromptRole::Assistant, "a dot"),
        ];
        let order = PromptOrder {
            turns: &turns,
            max_tokens: 9,
            temperature: Some(1.5),
            stream: false,
        };
        let wanted = json!({"model": "claude-x", "stream": false, "max_tokens": 9, "temperature": 1.0,
            "system": [{"type": "text", "text": "brief"}, {"type": "text", "text": "and kind"}],
            "messages": [
                {"role": "user", "content": "what is"},
                {"role": "user", "content": [{"type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}}]},
                {"role": "assistant", "content": "a dot"}]});
        let written = render_body("claude-x", &order).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), wanted);
        let system = [turn(PromptRole::System, "alone")];
        let alone = PromptOrder {
            turns: &system,
            ..order
        };
        assert!(render_body("claude-x", &alone).is_err());
    }

    /// MCPL-103: content, model, reason and usage.
    #[test]
    fn a_whole_answer_is_read() {
        let body = |reason: &str| {
            format!(
                r#"{{"id":"msg","type":"message","role":"assistant","model":"claude-x-1","content":[{{"type":"text","text":"Hel"}},{{"type":"thinking","thinking":"hm","signature":"s"}},{{"type":"text","text":"lo"}}],"stop_reason":"{reason}","stop_sequence":null,"usage":{{"input_tokens":400,"cache_read_input_tokens":50,"output_tokens":120}}}}"#
            )
        };
        let answer = parse_answer(body("end_turn").as_bytes()).unwrap();
        let usage = TokenUsage {
            input_tokens: 450,
            output_tokens: 120,
        };
        assert_eq!((&*answer.content, answer.usage), ("Hello", Some(usage)));
        assert_eq!(answer.model.as_deref(), Some("claude-x-1"));
        let ends = |reason| parse_answer(body(reason).as_bytes()).map(|answer| answer.finish);
        assert_eq!(ends("max_tokens"), Ok(FinishReason::MaxTokens));
        assert_eq!(ends("stop_sequence"), Ok(FinishReason::StopSequence));
        assert_eq!(ends("pause_turn"), Ok(FinishReason::EndTurn));
        assert_eq!(ends("refusal"), Err(AnswerError::Withheld));
        let error =
            br#"{"type":"error","error":{"type":"overloaded_error","message":"sk-secret"}}"#;
        assert_eq!(
            parse_answer(error).unwrap_err().to_string(),
            "it failed (overloaded_error)"
        );
        // What litellm's proxy answers for a model whose answer is mocked, also where a stream was asked for.
        let mocked = br#"{"content":[{"text":"Mocked answer of some words","type":"text"}],"id":"msg_013Z","model":"mocked-claude","role":"assistant","stop_reason":"end_turn","stop_sequence":null,"type":"message","usage":{"input_tokens":2095,"output_tokens":503}}"#;
        let mocked = parse_answer(mocked).unwrap();
        assert_eq!(
            (&*mocked.content, mocked.usage.unwrap().total()),
            ("Mocked answer of some words", 2598)
        );
        for bad in [&b"{}"[..], b"[]", b"", br#"{"type":"completion"}"#] {
            assert_eq!(parse_answer(bad), Err(AnswerError::Unreadable));
        }
    }

    /// MCPL-104: chunks add up to the whole, unknown events are skipped, and a truncated stream is an error.
    #[test]
    fn a_stream_is_read_part_by_part() {
        let mut stream = PartialAnswer::default();
        let mut parts = Vec::new();
        for data in [
            r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"model":"claude-x-1","stop_reason":null,"usage":{"input_tokens":25,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
            r#"{"type":"new_thing","any":[1]}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
        ] {
            parts.extend(parse_event(&mut stream, data).unwrap());
        }
        assert_eq!(stream.clone().finish(), Err(AnswerError::Truncated));
        for data in [
            r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":15}}"#,
            r#"{"type":"message_stop"}"#,
        ] {
            assert_eq!(parse_event(&mut stream, data), Ok(None));
        }
        assert!(stream.done);
        let answer = stream.finish().unwrap();
        assert_eq!((parts.concat(), parts.len()), (answer.content, 2));
        let usage = TokenUsage {
            input_tokens: 25,
            output_tokens: 15,
        };
        assert_eq!(
            (answer.finish, answer.usage),
            (FinishReason::MaxTokens, Some(usage))
        );
        let mut failing = PartialAnswer::default();
        let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"sk-secret"}}"#;
        assert_eq!(
            parse_event(&mut failing, error).unwrap_err().to_string(),
            "it failed (overloaded_error)"
        );
    }
}
