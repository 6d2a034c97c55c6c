//! One connection of the server: requests of MCP 2026-07-28, answered from what was found in the folder.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mgp_protocol::framing::Frame;
use mgp_protocol::jsonrpc::{
    self, ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Message,
};
use mgp_protocol::mcp::meta::{SKILLS, SUBSCRIPTION_ID};
use mgp_transports::lines::{self, LineSink, QueueLimits, ReadEnd, WriteEnd};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::scan::{FolderSkills, SKILL_FILE};

/// Longest accepted line, in bytes.
const LINE_BYTES_MAX: usize = 1 << 20;
/// A client that reads nothing for this long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3600);
/// How long changes settle before the folder is read again: an editor writes a file in several steps, and a checkout many.
const SETTLE: Duration = Duration::from_millis(300);

/// Serves one client until its input ends. Each item of `changes` says that something in the folder changed.
///
/// # Errors
/// Those of the folder, the input and the output.
pub(super) async fn serve(
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    folder: PathBuf,
    changes: mpsc::Receiver<()>,
) -> io::Result<()> {
    let (sink, writer) = lines::line_channel(QueueLimits::default());
    let answering = answer_lines(input, sink, folder, changes);
    match tokio::join!(answering, writer.run(output, WRITE_TIMEOUT)) {
        (Err(error) | Ok(ReadEnd::Failed(error)), _) | (_, WriteEnd::Failed(error)) => Err(error),
        (Ok(ReadEnd::Eof | ReadEnd::Runaway), WriteEnd::Closed | WriteEnd::Stalled) => Ok(()),
    }
}

/// The same; the output ends with the sink.
async fn answer_lines(
    input: impl AsyncRead + Unpin,
    sink: LineSink,
    folder: PathBuf,
    mut changes: mpsc::Receiver<()>,
) -> io::Result<ReadEnd> {
    let served = Mutex::new(Served {
        skills: scan(&folder, None)?,
        listener: None,
    });
    let lock = || served.lock().unwrap_or_else(PoisonError::into_inner);
    let reading = lines::read_lines(input, LINE_BYTES_MAX, |frame| {
        if let Frame::Line(line) = frame
            && let Some(answer) = lock().handle_line(&line)
        {
            send_line(&sink, answer);
        }
    });
    let following = async {
        while changes.recv().await.is_some() {
            tokio::time::sleep(SETTLE).await;
            let _ = changes.try_recv();
            let found = scan(&folder, Some(&lock().skills));
            match found {
                Ok(found) => {
                    if let Some(line) = lock().replace(found) {
                        let _ = sink.send_low_priority(line.into());
                    }
                }
                Err(error) => eprintln!("{}: {error}", folder.display()),
            }
        }
        std::future::pending::<()>().await;
    };
    Ok(tokio::select! {
        heard = reading => heard,
        () = following => unreachable!("it never ends"),
    })
}

/// Reads the folder, and writes to the log what is newly left out of it.
fn scan(folder: &std::path::Path, before: Option<&FolderSkills>) -> io::Result<FolderSkills> {
    let found = FolderSkills::scan(folder)?;
    let is_new = |why: &&String| before.is_none_or(|before| !before.left_out.contains(why));
    for why in found.left_out.iter().filter(is_new) {
        eprintln!("left out: {why}");
    }
    Ok(found)
}

fn send_line(sink: &LineSink, line: Vec<u8>) {
    if sink.send(line.into()).is_err() {
        sink.close();
    }
}

/// What the connection knows.
struct Served {
    skills: FolderSkills,
    /// The id of the newest `subscriptions/listen`, as JSON: the kernel has one open.
    listener: Option<String>,
}

impl Served {
    /// The notification of a change, if there is one and somebody listens.
    fn replace(&mut self, found: FolderSkills) -> Option<Vec<u8>> {
        if found == self.skills {
            return None;
        }
        self.skills = found;
        let id = self.listener.as_deref()?;
        let params = format!(r#"{{"_meta":{{"{SUBSCRIPTION_ID}":{id}}}}}"#);
        let method = "notifications/resources/list_changed";
        Some(jsonrpc::notification(method, Some(&params)))
    }

    fn handle_line(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        if let Ok(Message::Request { id, method, .. }) = jsonrpc::parse(line)
            && method == "subscriptions/listen"
        {
            let id = id.as_json();
            let params = format!(
                r#"{{"notifications":{{"resourcesListChanged":true}},"_meta":{{"{SUBSCRIPTION_ID}":{id}}}}}"#
            );
            let method = "notifications/subscriptions/acknowledged";
            let acknowledged = jsonrpc::notification(method, Some(&params));
            self.listener = Some(id.to_owned());
            return Some(acknowledged);
        }
        answer_line(&self.skills, line)
    }
}

fn answer_line(skills: &FolderSkills, line: &[u8]) -> Option<Vec<u8>> {
    match jsonrpc::parse(line) {
        Ok(Message::Request {
            id, method, params, ..
        }) => {
            let params: Value = params
                .and_then(|params| serde_json::from_str(RawValue::get(params)).ok())
                .unwrap_or_default();
            Some(match answer(skills, &method, &params) {
                Ok(result) => jsonrpc::result(id.as_json(), &result.to_string()),
                Err(error) => {
                    let error = serde_json::to_string(&error).expect("an error object is JSON");
                    jsonrpc::error(id.as_json(), &error)
                }
            })
        }
        Ok(Message::Notification { .. } | Message::Response { .. }) => None,
        Err(malformed) => malformed.to_frame(),
    }
}

/// What a request about the folder gets.
fn answer(skills: &FolderSkills, method: &str, params: &Value) -> Result<Value, ErrorObject> {
    let uri = params["uri"].as_str().unwrap_or_default();
    let unknown = |what: &str| ErrorObject::new(INVALID_PARAMS, format!("{uri} is no {what}"));
    let mut result = match method {
        "server/discover" => json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": {
                "resources": {"listChanged": true},
                "extensions": {SKILLS: {"directoryRead": true}},
            },
            "_meta": {"io.modelcontextprotocol/serverInfo":
                {"name": "mgp-skills", "version": env!("CARGO_PKG_VERSION")}},
        }),
        "resources/list" => {
            let files = skills.skills.iter().map(|(uri, skill)| {
                let fields = &skill.frontmatter;
                json!({"uri": uri, "name": fields["name"], "description": fields["description"],
                    "mimeType": "text/markdown"})
            });
            json!({"resources": files.collect::<Vec<_>>()})
        }
        "resources/templates/list" => json!({"resourceTemplates": []}),
        "skills/list" => {
            let entries = skills.skills.iter().map(|(uri, skill)| skill.to_entry(uri));
            json!({"skills": entries.collect::<Vec<_>>()})
        }
        "skills/get" => {
            let skill = skills.skills.get(uri).ok_or_else(|| unknown("skill"))?;
            json!({"skill": skill.to_entry(uri)})
        }
        "resources/directory/read" => {
            let children = skills.children(uri).ok_or_else(|| unknown("directory"))?;
            let children = children.into_iter().map(|(name, is_directory)| {
                let kind = match is_directory {
                    true => "inode/directory",
                    false => mime_type(&name),
                };
                json!({"uri": format!("{uri}/{name}"), "name": name, "mimeType": kind})
            });
            json!({"resources": children.collect::<Vec<_>>()})
        }
        "resources/read" => {
            let file = skills.file(uri).ok_or_else(|| unknown("file of a skill"))?;
            let failed = |e: io::Error| ErrorObject::new(INTERNAL_ERROR, format!("{uri}: {e}"));
            let content = file.read().map_err(failed)?;
            let mut content = match String::from_utf8(content) {
                Ok(text) => json!({"text": text}),
                Err(bytes) => json!({"blob": BASE64_STANDARD.encode(bytes.as_bytes())}),
            };
            content["uri"] = uri.into();
            content["mimeType"] = mime_type(uri).into();
            json!({"contents": [content]})
        }
        "ping" => json!({}),
        _ => {
            let why = format!("Method not found: {method}");
            return Err(ErrorObject::new(METHOD_NOT_FOUND, why));
        }
    };
    result["resultType"] = "complete".into();
    result["ttlMs"] = 0.into();
    result["cacheScope"] = "private".into();
    Ok(result)
}

fn mime_type(name: &str) -> &'static str {
    let is_skill = name.rsplit('/').next() == Some(SKILL_FILE);
    match name.rsplit_once('.').map(|(_, end)| end) {
        _ if is_skill => "text/markdown",
        Some("md") => "text/markdown",
        Some("json") => "application/json",
        Some("html") => "text/html",
        Some("png") => "image/png",
        Some("pdf") => "application/pdf",
        Some("py" | "sh" | "js" | "ts" | "txt" | "toml" | "yaml" | "yml" | "csv") => "text/plain",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXT-050
    #[test]
    fn requests_are_answered_from_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let skill = folder.path().join("a");
        std::fs::create_dir(&skill).unwrap();
        let text = "---\nname: a\ndescription: d\n---\n";
        std::fs::write(skill.join("SKILL.md"), text).unwrap();
        std::fs::write(skill.join("x.bin"), [0xff]).unwrap();
        let skills = FolderSkills::scan(folder.path()).unwrap();
        let ask = |method: &str, uri: &str| answer(&skills, method, &json!({"uri": uri}));
        let listed = ask("skills/list", "").unwrap();
        let got = ask("skills/get", "skill://a/SKILL.md").unwrap();
        assert_eq!(listed["skills"][0], got["skill"]);
        assert_eq!(got["skill"]["resources"][0]["size"], text.len());
        let read = ask("resources/read", "skill://a/SKILL.md").unwrap();
        assert_eq!(read["contents"][0]["text"], text);
        let read = ask("resources/read", "skill://a/x.bin").unwrap();
        assert_eq!(read["contents"][0]["blob"], "/w==");
        let children = ask("resources/directory/read", "skill://a").unwrap();
        assert_eq!(children["resources"].as_array().unwrap().len(), 2);
        for (method, uri) in [
            ("skills/get", "skill://a"),
            ("resources/read", "skill://a"),
            ("resources/directory/read", "skill://a/x.bin"),
        ] {
            assert_eq!(
                ask(method, uri).unwrap_err().code,
                INVALID_PARAMS,
                "{method}"
            );
        }
        std::fs::write(skill.join("x.bin"), "new").unwrap();
        let changed = ask("resources/read", "skill://a/x.bin").unwrap_err();
        assert_eq!(changed.code, INTERNAL_ERROR);
    }
}
