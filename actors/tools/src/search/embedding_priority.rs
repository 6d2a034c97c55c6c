//! The order in which texts are embedded: those of the most called tools first, by the counts of the audit log.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use mgp_engine::store::audit::record::AuditRecord;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::audit::Target;
use serde::Deserialize;

use super::embedding_queue::UsageCounts;
use mgp_store::audit::LogFolder;

/// Bytes that are read from the end of the log: some 10,000 calls, in a twentieth of a second.
const READ_BYTES: u64 = 8 << 20;

/// The members of an event that are read.
#[derive(Deserialize)]
struct Event {
    event_type: String,
    target: Target,
}

/// Counts calls at the end of the log in this data folder; unreadable lines are skipped. Blocks.
pub(super) fn read_usage_counts(data_dir: &Path) -> UsageCounts {
    let folder = LogFolder::new(data_dir);
    let mut left = READ_BYTES;
    let mut uses = UsageCounts::new();
    for number in folder.numbers().unwrap_or_default().into_iter().rev() {
        let Some(text) = read_end(&folder.file_path(number), left) else {
            break;
        };
        left = left.saturating_sub(text.len() as u64);
        for line in text.lines() {
            count_line(line, &mut uses);
        }
        if left == 0 {
            break;
        }
    }
    uses
}

fn read_end(path: &Path, max: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(max)))
        .ok()?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes).ok()?;
    // The first line may be incomplete: it is skipped.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn count_line(line: &str, uses: &mut UsageCounts) {
    let Some(record) = AuditRecord::parse(line.as_bytes()) else {
        return;
    };
    let Ok(event) = serde_json::from_str::<Event>(record.event) else {
        return;
    };
    if let ("TOOL_EXECUTED", Some(server), Some(tool)) = (
        event.event_type.as_str(),
        event.target.server_id,
        event.target.tool_name,
    ) {
        let tools = uses.entry(ServerId::new(server)).or_default();
        *tools.entry(tool.into()).or_default() += 1;
    }
}
