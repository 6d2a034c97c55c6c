//! The chat completions of OpenAI, as most providers and local servers answer them.

use mgp_protocol::mcpl::inference::{FinishReason, PromptPart, PromptRole, PromptTurn, TokenUsage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::provider::{
    AnswerError, CONTENT_MAX, LimitMember, PartialAnswer, PromptOrder, ProviderAnswer,
    render_content, sanitize_model_name, unsupported_block,
};

/// The last event of a stream.
const DONE: &str = "[DONE]";

pub(super) fn render_body(
    model: &str,
    limit: LimitMember,
    order: &PromptOrder<'_>,
) -> Result<String, String> {
    let messages: Result<Vec<Value>, String> = order.turns.iter().map(render_message).collect();
    let mut body = json!({"model": model, "messages": messages?, "stream": order.stream});
    let limit = match limit {
        LimitMember::MaxTokens => "max_tokens",
        LimitMember::MaxCompletionTokens => "max_completion_tokens",
    };
    body[limit] = order.max_tokens.into();
    if let Some(temperature) = order.temperature {
        body["temperature"] = temperature.into();
    }
    if order.stream {
        // Usage comes in an event of its own, on request.
        body["stream_options"] = json!({"include_usage": true});
    }
    Ok(body.to_string())
}

fn render_message(turn: &PromptTurn) -> Result<Value, String> {
    let role = match turn.role {
        PromptRole::System => "system",
        PromptRole::User => "user",
        PromptRole::Assistant => "assistant",
    };
    let content = render_content(turn, render_part)?;
    Ok(json!({"role": role, "content": content}))
}

fn render_part(part: &PromptPart) -> Result<Value, String> {
    match part {
        PromptPart::Text(text) => Ok(json!({"type": "text", "text": text})),
        PromptPart::Image { data, mime_type } => {
            let url = format!("data:{mime_type};base64,{data}");
            Ok(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        PromptPart::Other(kind) => Err(unsupported_block(kind)),
    }
}

#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    choices: Vec<WireChoice>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    usage: Option<WireUsage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct WireChoice {
    #[serde(default)]
    index: u64,
    #[serde(default)]
    message: Option<WireText>,
    #[serde(default)]
    delta: Option<WireText>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct WireText {
    #[serde(default)]
    content: Option<Value>,
}

impl WireText {
    /// A text, or blocks of text.
    fn text(self) -> String {
        match self.content {
            Some(Value::String(text)) => text,
            Some(Value::Array(parts)) => {
                let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
                texts.collect()
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
                String::new()
            }
        }
    }
}

#[derive(Clone, Copy, Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

/// Why it ended; no tools are offered and no stops set, so any other reason is the model's own end.
fn parse_finish_reason(reason: &str) -> Result<FinishReason, AnswerError> {
    match reason {
        "length" => Ok(FinishReason::MaxTokens),
        "content_filter" => Err(AnswerError::Withheld),
        _ => Ok(FinishReason::EndTurn),
    }
}

fn check_error(error: Option<&Value>) -> Result<(), AnswerError> {
    let Some(error) = error.filter(|error| !error.is_null()) else {
        return Ok(());
    };
    let code = |member: &str| error.get(member).and_then(Value::as_str);
    Err(AnswerError::from_code(
        code("code").or_else(|| code("type")),
    ))
}

pub(super) fn parse_answer(body: &[u8]) -> Result<ProviderAnswer, AnswerError> {
    let read: Completion = serde_json::from_slice(body).map_err(|_| AnswerError::Unreadable)?;
    check_error(read.error.as_ref())?;
    let first = read
        .choices
        .into_iter()
        .next()
        .ok_or(AnswerError::Unreadable)?;
    let finish = parse_finish_reason(first.finish_reason.as_deref().unwrap_or_default())?;
    let content = first.message.ok_or(AnswerError::Unreadable)?.text();
    if content.len() > CONTENT_MAX {
        Err(AnswerError::TooLong)
    } else {
        Ok(ProviderAnswer {
            content,
            model: read.model.as_deref().and_then(sanitize_model_name),
            finish,
            usage: read.usage.map(|usage| TokenUsage {
                input_tokens: usage.prompt_tokens,
                output_tokens: usage.completion_tokens,
            }),
        })
    }
}

pub(super) fn parse_event(
    gathered: &mut PartialAnswer,
    data: &str,
) -> Result<Option<String>, AnswerError> {
    if data.trim() == DONE {
        gathered.done = true;
        return Ok(None);
    }
    let read: Completion = serde_json::from_str(data).map_err(|_| AnswerError::Unreadable)?;
    check_error(read.error.as_ref())?;
    gathered.set_model(read.model.as_deref());
    if let Some(usage) = read.usage {
        gathered.input = Some(usage.prompt_tokens);
        gathered.output = Some(usage.completion_tokens);
    }
    // One choice is requested; chunks of others are ignored.
    let Some(choice) = read.choices.into_iter().find(|choice| choice.index == 0) else {
        return Ok(None);
    };
    if let Some(reason) = choice.finish_reason.as_deref() {
        gathered.finish = Some(parse_finish_reason(reason)?);
    }
    gathered.add(choice.delta.map(WireText::text).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(role: PromptRole, parts: &[PromptPart]) -> PromptTurn {
        PromptTurn {
            role,
            parts: parts.to_vec(),
        }
    }

    fn text(text: &str) -> PromptPart {
        PromptPart::Text(text.to_owned())
    }

    /// MCPL-144: texts stay texts, images become data, and unsupported blocks are rejected before sending.
    #[test]
    fn a_prompt_is_written_as_openai_reads_it() {
        let image = PromptPart::Image {
            data: "QQ==".into(),
            mime_type: "image/png".into(),
        };
        let turns = [
            turn(PromptRole::System, &[text("brief")]),
            turn(PromptRole::User, &[text("what is"), image]),
            turn(PromptRole::Assistant, &[text("a dot")]),
        ];
        let order = PromptOrder {
            turns: &turns,
            max_tokens: 9,
            temperature: Some(0.5),
            stream: true,
        };
        let body = render_body("gpt-x", LimitMember::MaxTokens, &order).unwrap();
        let wanted = json!({"model": "gpt-x", "stream": true, "max_tokens": 9, "temperature": 0.5,
            "stream_options": {"include_usage": true},
            "messages": [
                {"role": "system", "content": "brief"},
                {"role": "user", "content": [{"type": "text", "text": "what is"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}]},
                {"role": "assistant", "content": "a dot"}]});
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), wanted);
        let other = [turn(
            PromptRole::User,
            &[PromptPart::Other("resource".into())],
        )];
        let order = PromptOrder {
            turns: &other,
            max_tokens: 9,
            temperature: None,
            stream: false,
        };
        let refused = super::render_body("m", LimitMember::MaxCompletionTokens, &order);
        assert!(refused.unwrap_err().contains("resource"));
    }

    /// MCPL-103: content, model, reason and usage.
    #[test]
    fn a_whole_answer_is_read() {
        let body = |reason: &str, content: &str| {
            format!(
                r#"{{"id":"x","object":"chat.completion","model":"gpt-x-1","choices":[{{"index":0,"message":{{"role":"assistant","content":{content},"refusal":null}},"logprobs":null,"finish_reason":"{reason}"}}],"usage":{{"prompt_tokens":450,"completion_tokens":120,"total_tokens":570}}}}"#
            )
        };
        let answer = parse_answer(body("stop", r#""Hello""#).as_bytes()).unwrap();
        let usage = TokenUsage {
            input_tokens: 450,
            output_tokens: 120,
        };
        let wanted = ProviderAnswer {
            content: "Hello".into(),
            model: Some("gpt-x-1".into()),
            finish: FinishReason::EndTurn,
            usage: Some(usage),
        };
        assert_eq!(answer, wanted);
        let length = parse_answer(
            body("length", r#"[{"type":"text","text":"He"},{"text":"llo"}]"#).as_bytes(),
        );
        let length = length.unwrap();
        assert_eq!(
            (&*length.content, length.finish),
            ("Hello", FinishReason::MaxTokens)
        );
        let none = parse_answer(body("tool_calls", "null").as_bytes()).unwrap();
        assert_eq!((&*none.content, none.finish), ("", FinishReason::EndTurn));
        assert_eq!(
            parse_answer(body("content_filter", "null").as_bytes()),
            Err(AnswerError::Withheld)
        );
        for bad in [
            &b"{}"[..],
            b"[]",
            b"<html>",
            b"",
            br#"{"choices":[{"finish_reason":"stop"}]}"#,
        ] {
            assert_eq!(parse_answer(bad), Err(AnswerError::Unreadable));
        }
        let long = format!("{:?}", "x".repeat(CONTENT_MAX + 1));
        assert_eq!(
            parse_answer(body("stop", &long).as_bytes()),
            Err(AnswerError::TooLong)
        );
    }

    /// MCPL-104: chunks add up to the whole; other choices are ignored; a truncated stream is an error.
    #[test]
    fn a_stream_is_read_part_by_part() {
        let mut stream = PartialAnswer::default();
        let mut parts = Vec::new();
        for data in [
            r#"{"model":"gpt-x-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"other"},"finish_reason":null}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}"#,
        ] {
            parts.extend(parse_event(&mut stream, data).unwrap());
        }
        assert_eq!(stream.clone().finish(), Err(AnswerError::Truncated));
        for data in [
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#,
            "[DONE]",
        ] {
            assert_eq!(parse_event(&mut stream, data), Ok(None));
        }
        assert!(stream.done);
        let answer = stream.finish().unwrap();
        assert_eq!(parts.concat(), answer.content);
        assert_eq!(parts, ["Hel", "lo"]);
        assert_eq!(
            (answer.finish, answer.usage.unwrap().total()),
            (FinishReason::MaxTokens, 5)
        );
    }

    /// What litellm's proxy answers for a model whose answer is mocked.
    #[test]
    fn the_answers_of_litellm_are_read() {
        let whole = r#"{"id":"chatcmpl-9e53","created":1795664109,"model":"mocked","object":"chat.completion","choices":[{"finish_reason":"stop","index":0,"message":{"content":"Mocked answer of some words","role":"assistant"}}],"usage":{"completion_tokens":20,"prompt_tokens":10,"total_tokens":30}}"#;
        let whole = parse_answer(whole.as_bytes()).unwrap();
        assert_eq!(
            (&*whole.content, whole.usage.unwrap().total()),
            ("Mocked answer of some words", 30)
        );
        let mut stream = PartialAnswer::default();
        for data in [
            r#"{"id":"chatcmpl-171a","object":"chat.completion.chunk","created":1795664109,"model":"mocked","choices":[{"index":0,"delta":{"content":"rds"}}]}"#,
            r#"{"id":"chatcmpl-171a","object":"chat.completion.chunk","created":1795664109,"model":"mocked","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"id":"chatcmpl-171a","created":1795664109,"model":"mocked","object":"chat.completion.chunk","choices":[{"index":0,"delta":{}}],"usage":{"completion_tokens":6,"prompt_tokens":8,"total_tokens":14,"completion_tokens_details":{"reasoning_tokens":0,"text_tokens":6},"cost":0.0000128}}"#,
            "[DONE]",
        ] {
            parse_event(&mut stream, data).unwrap();
        }
        let answer = stream.finish().unwrap();
        assert_eq!(
            (&*answer.content, answer.usage.unwrap().total()),
            ("rds", 14)
        );
    }

    #[test]
    fn a_stream_that_fails_or_never_ends_is_stopped() {
        let mut stream = PartialAnswer::default();
        let error = r#"{"error":{"message":"sk-secret","code":"server_error"}}"#;
        let failed = parse_event(&mut stream, error).unwrap_err();
        assert_eq!(failed.to_string(), "it failed (server_error)");
        assert_eq!(
            parse_event(&mut stream, "nonsense"),
            Err(AnswerError::Unreadable)
        );
        let part = "x".repeat(CONTENT_MAX / 2);
        let data = format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{part}"}}}}]}}"#);
        assert!(parse_event(&mut stream, &data).is_ok() && parse_event(&mut stream, &data).is_ok());
        assert_eq!(parse_event(&mut stream, &data), Err(AnswerError::TooLong));
    }
}
