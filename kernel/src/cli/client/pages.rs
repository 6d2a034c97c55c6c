//! Reads MCP lists page by page.

use std::collections::BTreeMap;

use serde_json::json;
use serde_json::value::RawValue;

use super::connection::KernelClient;
use super::progress::ProgressLine;
use super::response::parse_result;
use crate::cli::failure::Failure;

/// Pages after which a list counts as endless.
const MAX_PAGES: usize = 1000;

/// A page of any list: its members.
type Page = BTreeMap<String, Box<RawValue>>;

/// All items that `method` lists under `member`, as the kernel wrote them.
pub(in crate::cli) async fn list_all(
    client: &mut KernelClient,
    method: &str,
    member: &str,
) -> Result<Vec<Box<RawValue>>, Failure> {
    let (mut items, mut cursor) = (Vec::new(), None);
    let mut progress = ProgressLine::new(format!("listing {member}"));
    for _ in 0..MAX_PAGES {
        let params = match cursor {
            Some(cursor) => json!({ "cursor": cursor }),
            None => json!({}),
        };
        let answer = client.request(method, &params, &mut progress).await?;
        let mut page: Page = parse_result(&answer)?;
        if let Some(more) = page.remove(member) {
            items.extend(parse_result::<Vec<Box<RawValue>>>(&more)?);
        }
        match page.remove("nextCursor") {
            Some(next) => cursor = Some(parse_result::<String>(&next)?),
            None => return Ok(items),
        }
    }
    Err(Failure::Other(format!(
        "the list of {member} has more than {MAX_PAGES} pages"
    )))
}
