//! Fetches the rest of a result that the kernel truncated.

use mgp_protocol::mcp::{Method, tools};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cli::client::{KernelClient, parse_result};
use crate::cli::failure::Failure;

/// The tool that continues, as named in the last line of a truncated text.
const READ_TOOL: &str = "mgp_calls_read";
/// Most pages of one result: 8 MiB, the stored maximum, in the smallest useful pages.
const PAGES_MAX: usize = 8192;

/// Splits a continued text: the text before the last line, and the arguments of the next call.
fn split_continuation(text: &str) -> Option<(&str, Value)> {
    let (before, line) = text.rsplit_once('\n')?;
    let ours = line.starts_with("[Cut here: ") || line.starts_with("[Bytes ");
    let (_, arguments) = line.split_once(READ_TOOL).filter(|_| ours)?;
    let from = arguments.find('{')?;
    let to = arguments.rfind('}')?;
    let arguments: Value = serde_json::from_str(arguments.get(from..=to)?).ok()?;
    let whole = arguments["result_id"].is_string() && arguments["from"].is_u64();
    whole.then_some((before, arguments))
}

/// Completes a truncated result, over the connection that returned it.
pub(super) async fn read_all_pages(
    client: &mut KernelClient,
    answer: Box<RawValue>,
) -> Result<Box<RawValue>, Failure> {
    let mut result: Value = parse_result(&answer)?;
    let mut read_any = false;
    for item in result["content"].as_array_mut().into_iter().flatten() {
        let Some((before, mut next)) = item["text"].as_str().and_then(split_continuation) else {
            continue;
        };
        read_any = true;
        let mut text = before.to_owned();
        for _ in 0..PAGES_MAX {
            let params = json!({"name": READ_TOOL, "arguments": next});
            let part = client.call(tools::Call::METHOD, &params, "reading on".to_owned());
            let part: Value = parse_result(&part.await?)?;
            let part = part["content"][0]["text"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            match split_continuation(&part) {
                Some((before, after)) => {
                    text += before;
                    next = after;
                }
                None => {
                    text += &part;
                    break;
                }
            }
        }
        item["text"] = text.into();
    }
    if !read_any {
        return Ok(answer);
    }
    RawValue::from_string(result.to_string()).map_err(|e| Failure::Other(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernels_line_at_the_end_continues() {
        let line = "a\nb\n[Cut here: 3 of 9 bytes. Read on with the tool mgp_calls_read: {\"result_id\":\"x\",\"from\":3}]";
        let (before, arguments) = split_continuation(line).unwrap();
        assert_eq!(
            (before, &arguments),
            ("a\nb", &json!({"result_id": "x", "from": 3}))
        );
        let page = "b\n[Bytes 3 to 5 of 9. Read on with the tool mgp_calls_read: {\"result_id\":\"x\",\"from\":5}]";
        assert_eq!(split_continuation(page).unwrap().1["from"], 5);
        for none in [
            "a",
            "[Cut here: no tool]",
            "x\n[Cut here: 1 of 2. Read on with the tool mgp_calls_read: {\"from\":1}]",
            "x\nRead on with the tool mgp_calls_read: {\"result_id\":\"x\",\"from\":1}",
            &format!("{line}\nmore"),
        ] {
            assert_eq!(split_continuation(none), None, "{none}");
        }
    }
}
