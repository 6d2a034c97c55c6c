//! Renders all refusals, so that no row changes unnoticed.

use std::fmt::Write as _;

use serde_json::value::RawValue;

use crate::dialect::Version;
use crate::ids::ServerId;
use crate::lite::error::LiteRefusal;
use crate::refusal::mgp::Code;
use crate::refusal::owner_refusal::{OwnerAnswer, OwnerRefusal, OwnerRefusalCause};
use crate::refusal::{CallOutcome, Denial, Refusal, UnansweredCall};

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn unanswered(refusal: Refusal, outcome: CallOutcome) -> Refusal {
    let call_id = "id".into();
    Refusal::Unanswered(Box::new(UnansweredCall {
        refusal,
        outcome,
        call_id,
    }))
}

fn not_ready(state: &'static str, unreachable: bool) -> Refusal {
    Refusal::NotReady {
        server: ServerId::new("s"),
        state,
        reason: None,
        retry_after_ms: None,
        unreachable,
    }
}

fn timed_out(remote: bool) -> Refusal {
    let server = ServerId::new("s");
    Refusal::TimedOut {
        server,
        after_ms: 1,
        remote,
    }
}

fn refusals() -> Vec<Refusal> {
    let server = || ServerId::new("s");
    let text = || "x".to_owned();
    let mut all = vec![
        Refusal::UnknownMethod(text()),
        Refusal::BadParams(text()),
        Refusal::BadMeta(text()),
        Refusal::HeaderMismatch(text()),
        Refusal::MissingCapability {
            required: raw("{}"),
        },
        Refusal::UnsupportedVersion { requested: text() },
        Refusal::Expired(text()),
        Refusal::BadRequest(text()),
        Refusal::UnknownTool(text()),
        Refusal::UnknownPrompt(text()),
        Refusal::UnknownResource(text()),
        Refusal::UnknownServer(text()),
        Refusal::UnknownId(text()),
        Refusal::WindowExpired(text()),
        Refusal::BadCursor,
        Refusal::BadArguments {
            tool: text(),
            path: text(),
            keyword: text(),
            message: text(),
        },
        Refusal::BadResult {
            server: server(),
            tool: text(),
            path: text(),
            keyword: text(),
            message: text(),
        },
        not_ready("connecting", false),
        not_ready("draining", false),
        not_ready("restarting", false),
        not_ready("restarting", true),
        Refusal::ServerLost {
            server: server(),
            reason: text(),
        },
        Refusal::InvalidAnswer {
            server: server(),
            reason: text(),
        },
        timed_out(false),
        timed_out(true),
        Refusal::QueueTimeout {
            server: server(),
            after_ms: 1,
        },
        Refusal::Overloaded { what: text() },
        Refusal::TooLarge {
            server: server(),
            limit: 1,
        },
        Refusal::Undelivered {
            server: server(),
            limit: 1,
        },
        Refusal::Withheld {
            server: server(),
            reason: text(),
        },
        Refusal::Forbidden(text()),
        Refusal::ClosedByOwner(text()),
        Refusal::Cancelled,
        Refusal::Internal(text()),
    ];
    for code in [-32601, -32020, -32021, -32022, -32602, 3000] {
        let error = format!(r#"{{"code":{code},"message":"m"}}"#);
        all.push(Refusal::Peer(raw(&error)));
        all.push(Refusal::Unattributed(raw(&error)));
        all.push(unanswered(Refusal::Peer(raw(&error)), CallOutcome::Done));
    }
    all.extend(owner_refusals());
    all.extend(
        denials()
            .into_iter()
            .map(|denial| Refusal::Denied(Box::new(denial))),
    );
    // A rejection has the row of its refusal.
    let rejected = denials().into_iter();
    let rejected = rejected.map(|denial| Refusal::Denied(Box::new(denial)).into_tool_rejection());
    all.extend(rejected.filter(|refusal| matches!(refusal, Refusal::Rejected(_))));
    all.push(unanswered(timed_out(true), CallOutcome::Unknown));
    all.push(unanswered(
        Refusal::ClosedByOwner(text()),
        CallOutcome::Done,
    ));
    all.push(unanswered(
        Refusal::UnknownResource(text()),
        CallOutcome::NotExecuted,
    ));
    all
}

fn owner_refusals() -> Vec<Refusal> {
    let causes = [
        OwnerRefusalCause::Closed,
        OwnerRefusalCause::NotFound,
        OwnerRefusalCause::Denied,
        OwnerRefusalCause::Blocked,
        OwnerRefusalCause::Unavailable,
        OwnerRefusalCause::TimedOut,
        OwnerRefusalCause::Failed,
    ];
    let outcomes = [
        CallOutcome::NotExecuted,
        CallOutcome::Done,
        CallOutcome::Unknown,
    ];
    let answers = [
        OwnerAnswer::Error(r#"{"code":-32601,"message":"m"}"#.to_owned()),
        OwnerAnswer::Result("{}".to_owned()),
    ];
    let mut all = Vec::new();
    for cause in causes {
        for outcome in outcomes {
            for answer in &answers {
                let answer = answer.clone();
                let refusal = OwnerRefusal {
                    cause,
                    outcome,
                    answer,
                };
                all.push(Refusal::Owner(Box::new(refusal)));
            }
        }
    }
    all
}

fn denials() -> Vec<Denial> {
    let text = || "x".to_owned();
    vec![
        Denial::Permission {
            tool: text(),
            permission: text(),
        },
        Denial::Unconfirmed {
            tool: text(),
            why: text(),
        },
        Denial::NotGranted {
            tool: text(),
            rule: text(),
        },
        Denial::Condition {
            tool: text(),
            rule: text(),
            allowed: Some(text()),
        },
        Denial::NoCredentials(text()),
        Denial::CredentialsExpired(text()),
        Denial::Validator {
            validator: text(),
            path: text(),
            rule: text(),
            reason: text(),
            hint: None,
        },
        Denial::UnsafeCode {
            violations: Vec::new(),
            path: text(),
            body: raw("{}"),
        },
        Denial::Registration {
            server: text(),
            code: Code::ServerExists,
            rule: "r",
            at: text(),
            reason: text(),
            hint: "h",
        },
        Denial::RateLimited {
            limit: 1,
            window_secs: 1,
            current: 1,
            retry_after_ms: 1,
            next: None,
        },
        Denial::OverQuota {
            what: text(),
            limit: 1,
            next: None,
        },
        Denial::Disabled {
            tool: text(),
            reason: text(),
        },
        Denial::AskCycle(text()),
        Denial::AskDepth(text()),
        Denial::NoSubscription { id: text() },
    ]
}

/// The name of the variant, with its distinguishing values.
fn name(refusal: &Refusal) -> String {
    let variant = |value: &dyn std::fmt::Debug| {
        let text = format!("{value:?}");
        let end = text.find([' ', '(', '{']).unwrap_or(text.len());
        text[..end].to_owned()
    };
    let detail = if let Refusal::Owner(owner) = refusal {
        let answer = owner.error().map_or("result", |_| "error");
        format!("{:?}/{:?}/{answer}", owner.cause, owner.outcome)
    } else if let Refusal::Denied(denial) = refusal {
        variant(denial)
    } else if let Refusal::Unanswered(call) = refusal {
        name(&call.refusal)
    } else if let Refusal::Rejected(rejection) = refusal {
        name(&rejection.refusal)
    } else if let Refusal::NotReady {
        state, unreachable, ..
    } = refusal
    {
        format!("{state}/{unreachable}")
    } else if let Refusal::TimedOut { remote, .. } = refusal {
        remote.to_string()
    } else if let Refusal::Peer(error) | Refusal::Unattributed(error) = refusal {
        let error: serde_json::Value = serde_json::from_str(error.get()).unwrap();
        error["code"].to_string()
    } else {
        return variant(refusal);
    };
    format!("{}/{detail}", variant(refusal))
}

fn row(refusal: &Refusal) -> String {
    let versions = Version::LEGACY.into_iter().chain([Version::STATELESS]);
    let mut codes: Vec<i64> = versions.map(|version| refusal.code(version)).collect();
    codes.dedup();
    let lite = match LiteRefusal::from_refusal(refusal) {
        LiteRefusal::Error(error) => format!("{:?}/{}/{}", error.kind, error.code, error.status),
        LiteRefusal::Failure(_) => "Failure".to_owned(),
    };
    let spec = refusal.spec();
    let failure = spec
        .failure
        .map_or("-".to_owned(), |failure| failure.to_string());
    let mut row = format!("{} {codes:?} {}", name(refusal), refusal.http_status());
    let mgp = refusal.mgp_code().map_or("-", Code::name);
    write!(row, " {mgp} {}/{failure}", spec.outcome.as_str()).unwrap();
    write!(row, " {}", spec.reason.as_str()).unwrap();
    write!(row, " {:?}", spec.owner_cause).unwrap();
    writeln!(row, " {} {lite}", spec.call_outcome.as_str()).unwrap();
    row
}

/// EXT-164: a rejection by a tool has the row of the refusal that it renders.
#[test]
fn refusals_are_rendered_as_in_their_rows() {
    let rows: String = refusals().iter().map(row).collect();
    assert_eq!(rows, include_str!("rows.txt"));
}
