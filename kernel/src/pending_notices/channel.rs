//! The ways to announce something.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use mgp_platform::desktop;
use mgp_runtime::time::unix_ms;
use mgp_runtime::{run_bounded, task};
use mgp_transports::http::client::{Client, parse_url};
use mgp_transports::log::sanitize;
use ring::hmac;

use super::notice::Notice;
use crate::config::NotifyConfig;

/// Limit for one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest output of a program that is read, in bytes.
const OUTPUT_MAX: usize = 4096;
/// The place of the text in the arguments of a program.
const TEXT_PLACEHOLDER: &str = "{text}";
/// The variable with the notice as JSON, at most 20 KB.
const NOTICE_VARIABLE: &str = "MGP_NOTICE";
/// How secrets of Standard Webhooks begin that are written in base64.
const BASE64_SECRET_PREFIX: &str = "whsec_";

/// One way to announce something.
pub(super) enum Channel {
    Desktop,
    Command(Vec<String>),
    Webhook(Box<Webhook>),
}

impl Channel {
    pub(super) fn from_config(config: &NotifyConfig, client: &Client) -> Vec<Self> {
        let mut channels = Vec::new();
        if config.desktop {
            channels.push(Self::Desktop);
        }
        if !config.command.is_empty() {
            channels.push(Self::Command(config.command.clone()));
        }
        let url = config.webhook.as_deref().map(parse_url);
        if let Some(Ok(url)) = url {
            let (client, key) = (client.clone(), signing_key(&config.webhook_secret.0));
            channels.push(Self::Webhook(Box::new(Webhook { client, url, key })));
        }
        channels
    }

    /// The key in `[notify]`.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Desktop => "desktop",
            Self::Command(_) => "command",
            Self::Webhook(_) => "webhook",
        }
    }

    /// Announces it, within [`ATTEMPT_TIMEOUT`].
    pub(super) async fn send(&self, notice: &Notice) -> Result<(), String> {
        match self {
            Self::Desktop => {
                let (title, text) = (notice.title(), notice.text());
                let showing = task::run_blocking("notices.desktop", move || {
                    desktop::show(&title, &text, ATTEMPT_TIMEOUT)
                });
                showing.await.unwrap_or_else(|e| Err(e.to_string()))
            }
            Self::Command(words) => {
                let (words, notice) = (
                    words.clone(),
                    (notice.title(), notice.text(), notice.to_json()),
                );
                let running =
                    task::run_blocking("notices.command", move || run_program(&words, &notice));
                running.await.unwrap_or_else(|e| Err(e.to_string()))
            }
            Self::Webhook(webhook) => {
                let id = notice.message_id();
                let posting = webhook.post(&id, notice.to_json());
                let posted = tokio::time::timeout(ATTEMPT_TIMEOUT, posting).await;
                posted.unwrap_or_else(|_| {
                    let secs = ATTEMPT_TIMEOUT.as_secs();
                    Err(format!("the webhook gave no answer within {secs} s"))
                })
            }
        }
    }
}

/// Runs the program with the text and the JSON.
fn run_program(
    words: &[String],
    (title, text, json): &(String, String, String),
) -> Result<(), String> {
    let (program, arguments) = words.split_first().ok_or("no program is configured")?;
    let text = format!("{title}\n{text}");
    let arguments = arguments
        .iter()
        .map(|word| word.replace(TEXT_PLACEHOLDER, &text));
    let mut command = Command::new(program);
    // What it starts is killed with it.
    command
        .args(arguments)
        .env(NOTICE_VARIABLE, json)
        .process_group(0);
    let output = run_bounded(&mut command, ATTEMPT_TIMEOUT, OUTPUT_MAX);
    let output = output.map_err(|e| format!("`{program}` cannot be started: {e}"))?;
    match output.status {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let last = stderr.lines().rfind(|line| !line.trim().is_empty());
            let last = last.map(|line| format!(": {}", sanitize(line.as_bytes())));
            Err(format!(
                "`{program}` failed ({status}){}",
                last.unwrap_or_default()
            ))
        }
        None => Err(format!(
            "`{program}` did not end within {} s, and was killed",
            ATTEMPT_TIMEOUT.as_secs()
        )),
    }
}

/// A receiver of signed notices, as Standard Webhooks has them (standardwebhooks.com).
pub(super) struct Webhook {
    client: Client,
    url: Uri,
    key: hmac::Key,
}

/// A secret in base64 after `whsec_`, or any text.
fn signing_key(secret: &str) -> hmac::Key {
    let encoded = secret.strip_prefix(BASE64_SECRET_PREFIX);
    let decoded = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
    let bytes = decoded.unwrap_or_else(|| secret.as_bytes().to_vec());
    hmac::Key::new(hmac::HMAC_SHA256, &bytes)
}

fn signature(key: &hmac::Key, id: &str, timestamp: u64, body: &str) -> String {
    let signed = format!("{id}.{timestamp}.{body}");
    let tag = hmac::sign(key, signed.as_bytes());
    format!("v1,{}", STANDARD.encode(tag.as_ref()))
}

impl Webhook {
    /// Any answer but 2xx is a failure; redirects are not followed.
    async fn post(&self, id: &str, body: String) -> Result<(), String> {
        let timestamp = unix_ms() / 1000;
        let signature = signature(&self.key, id, timestamp, &body);
        let value = |text: &str| HeaderValue::from_str(text).map_err(|e| e.to_string());
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (HeaderName::from_static("webhook-id"), value(id)?),
            (
                HeaderName::from_static("webhook-timestamp"),
                value(&timestamp.to_string())?,
            ),
            (
                HeaderName::from_static("webhook-signature"),
                value(&signature)?,
            ),
        ]);
        let body = Some(Bytes::from(body));
        let answer = self.client.request(Method::POST, &self.url, headers, body);
        let answer = answer.await.map_err(|e| e.to_string())?;
        if answer.status.is_success() {
            Ok(())
        } else {
            Err(format!("the webhook answered {}", answer.status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        let key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signed = signature(&key, id, 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_program_gets_the_text_and_the_json() {
        let run = |script: &str| {
            let words = ["sh", "-c", script, "sh", "<{text}>"].map(str::to_owned);
            run_program(&words, &("title".into(), "text".into(), "{}".into()))
        };
        let expected = r#"[ "$1" = "<title
text>" ] && [ "$MGP_NOTICE" = "{}" ]"#;
        assert_eq!(run(expected), Ok(()));
        let failed = run("echo no display >&2; exit 3").unwrap_err();
        assert!(failed.contains("no display"), "{failed}");
        let absent = run_program(&["/nowhere/x".into()], &Default::default());
        assert!(absent.unwrap_err().contains("cannot be started"));
    }
}
