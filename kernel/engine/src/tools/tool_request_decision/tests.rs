use super::*;
use mgp_protocol::mgp::tools::Fulfilment::{
    Creating, Fulfilled, Partial, PendingApproval, Unavailable,
};
use proptest::prelude::*;

use Readiness::{AwaitingApproval, PermissionDenied, Ready};

const CLOSED: CreationConditions = CreationConditions {
    is_enabled: false,
    is_negotiated: false,
    can_run_code: false,
    policy: Policy::Interactive,
    has_session: false,
};
const OPEN: CreationConditions = CreationConditions {
    is_enabled: true,
    is_negotiated: true,
    can_run_code: true,
    policy: Policy::AutoApprove,
    has_session: true,
};

fn tool(name: &'static str, score: f32, readiness: Readiness) -> Candidate<&'static str> {
    Candidate {
        tool: name,
        score,
        is_match: true,
        risk: RiskLevel::Moderate,
        readiness,
    }
}

fn matches(
    capability: &str,
    candidates: &[Candidate<&'static str>],
) -> CapabilityMatches<&'static str> {
    CapabilityMatches {
        capability: capability.into(),
        candidates: candidates.to_vec(),
    }
}

fn status(all: &[CapabilityMatches<&'static str>]) -> Fulfilment {
    decide(all, None, CLOSED).status
}

/// MGP-250..MGP-253: all statuses but `creating`.
#[test]
fn the_status_says_how_much_was_found() {
    let ready = matches("a", &[tool("x", 0.9, Ready)]);
    let waits = matches("b", &[tool("y", 0.9, AwaitingApproval)]);
    let none = matches("c", &[]);
    assert_eq!(status(std::slice::from_ref(&ready)), Fulfilled);
    assert_eq!(status(&[ready.clone(), none.clone()]), Partial);
    assert_eq!(status(&[ready.clone(), waits.clone()]), Partial);
    assert_eq!(status(std::slice::from_ref(&none)), Unavailable);
    assert_eq!(status(std::slice::from_ref(&waits)), PendingApproval);
    assert_eq!(status(&[waits.clone(), none.clone()]), PendingApproval);
    assert_eq!(status(&[]), Unavailable);
    let all = decide(&[ready, waits, none], None, CLOSED);
    assert_eq!((all.to_load, all.pending), (vec!["x"], vec!["y"]));
    assert_eq!(all.unavailable, ["c"]);
}

/// MGP-253: a tool that is ready wins over a slightly better one that requirements an approval; a denied tool counts as missing.
#[test]
fn ready_tools_are_preferred() {
    let decide_for = |candidates: &[Candidate<&'static str>]| {
        let out = decide(&[matches("a", candidates)], None, CLOSED);
        (out.to_load, out.pending)
    };
    let best_waits = [
        tool("waits", 1.0, AwaitingApproval),
        tool("ready", 0.95, Ready),
    ];
    assert_eq!(decide_for(&best_waits), (vec!["ready"], vec![]));
    let far_behind = [
        tool("waits", 1.0, AwaitingApproval),
        tool("ready", 0.8, Ready),
    ];
    assert_eq!(decide_for(&far_behind), (vec![], vec!["waits"]));
    assert_eq!(
        decide_for(&[tool("denied", 1.0, PermissionDenied)]),
        (vec![], vec![])
    );
    assert_eq!(
        decide_for(&[tool("odd", f32::NAN, Ready)]),
        (vec![], vec![])
    );
    let equal = [tool("first", 0.9, Ready), tool("second", 0.9, Ready)];
    assert_eq!(decide_for(&equal), (vec!["first"], vec![]));
}

/// MGP-248
#[test]
fn a_preferred_risk_orders_matches_but_excludes_none() {
    let mut risky = tool("risky", 1.0, Ready);
    risky.risk = RiskLevel::Dangerous;
    let decide_for = |candidates: &[Candidate<&'static str>], preferred| {
        decide(&[matches("a", candidates)], preferred, CLOSED).to_load
    };
    let both = [risky.clone(), tool("mild", 0.95, Ready)];
    assert_eq!(decide_for(&both, None), ["risky"]);
    assert_eq!(decide_for(&both, Some(RiskLevel::Moderate)), ["mild"]);
    assert_eq!(decide_for(&both, Some(RiskLevel::Safe)), ["risky"]);
    assert_eq!(decide_for(&[risky], Some(RiskLevel::Safe)), ["risky"]);
}

/// MGP-252
#[test]
fn the_best_hit_is_not_loaded_unless_it_matches() {
    let decide_for = |fits| {
        let candidate = Candidate {
            is_match: fits,
            ..tool("x", 1.0, Ready)
        };
        status(&[matches("a", &[candidate])])
    };
    assert_eq!(decide_for(false), Unavailable);
    assert_eq!(decide_for(true), Fulfilled);
}

/// MGP-249
#[test]
fn a_tool_for_two_capabilities_is_loaded_once() {
    let one = [tool("x", 0.9, Ready)];
    let out = decide(&[matches("a", &one), matches("b", &one)], None, CLOSED);
    assert_eq!((out.status, out.to_load), (Fulfilled, vec!["x"]));
}

/// MGP-254, MGP-255, A-51: and only if nothing was found at all; the instructions keep to the guardrails.
#[test]
fn creating_a_tool_needs_every_precondition() {
    let none = [matches("statistics", &[])];
    let decision = decide(&none, None, OPEN);
    assert_eq!(decision.status, Creating);
    let creation = decision.creation.unwrap();
    assert!(creation.instructions.contains("statistics"));
    let bounds = creation.constraints;
    assert_eq!(bounds.register_with, "mgp/discovery/register");
    assert_eq!(
        (
            bounds.code_safety_level,
            bounds.trust_level,
            bounds.session_scoped
        ),
        ("strict", "sandboxed", true)
    );
    let mut closed = vec![CLOSED];
    closed.push(CreationConditions {
        is_enabled: false,
        ..OPEN
    });
    closed.push(CreationConditions {
        is_negotiated: false,
        ..OPEN
    });
    closed.push(CreationConditions {
        can_run_code: false,
        ..OPEN
    });
    closed.push(CreationConditions {
        has_session: false,
        ..OPEN
    });
    for policy in [Policy::Interactive, Policy::DenyAll, Policy::ConfigOnly] {
        closed.push(CreationConditions { policy, ..OPEN });
    }
    for creating in closed {
        let out = decide(&none, None, creating);
        assert_eq!(
            (out.status, out.creation),
            (Unavailable, None),
            "{creating:?}"
        );
    }
    let some = [
        matches("statistics", &[]),
        matches("b", &[tool("x", 1.0, Ready)]),
    ];
    assert_eq!(decide(&some, None, OPEN).status, Partial);
    let waits = [matches("statistics", &[tool("x", 1.0, AwaitingApproval)])];
    assert_eq!(decide(&waits, None, OPEN).status, PendingApproval);
    assert_eq!(decide::<&str>(&[], None, OPEN).status, Unavailable);
}

/// MGP-248: with the input and output types; bounded.
#[test]
fn a_request_is_one_search_for_each_capability() {
    let requirements = |capabilities: &[&str]| Requirements {
        capabilities: capabilities.iter().map(ToString::to_string).collect(),
        input_types: vec!["csv".into(), "tabular_data".into()],
        output_types: vec!["chart".into()],
        preferred_risk_level: None,
    };
    let asked = build_queries(&requirements(&[
        "data_analysis",
        "statistics",
        "Statistics ",
    ]))
    .unwrap();
    let queries: Vec<(&str, &str)> = asked.iter().map(|q| (&*q.capability, &*q.text)).collect();
    assert_eq!(
        queries,
        [
            (
                "data_analysis",
                "data analysis from csv, tabular data to chart"
            ),
            ("statistics", "statistics from csv, tabular data to chart"),
        ]
    );
    assert_eq!(build_queries(&requirements(&[])), Err(BadRequest::Empty));
    let many = requirements(&["x"; 17]);
    assert_eq!(
        build_queries(&many),
        Err(BadRequest::TooMany("capabilities", 17, 16))
    );
    assert_eq!(
        build_queries(&requirements(&[" "])),
        Err(BadRequest::Length("capabilities", 0))
    );
    let long_text = "é".repeat(200);
    let asked = build_queries(&requirements(&[&long_text])).unwrap();
    assert!(
        asked[0].text.starts_with(&long_text),
        "all of it is searched for"
    );
    assert_eq!(asked[0].capability, format!("{}…", "é".repeat(128)));
    let mut long = requirements(&["x"]);
    long.output_types.push("y".repeat(257));
    assert_eq!(
        build_queries(&long),
        Err(BadRequest::Length("output_types", 257))
    );
}

fn candidate() -> impl Strategy<Value = Candidate<u8>> {
    (0u8..6, 0u8..=10, 0usize..3, 0usize..3).prop_map(|(tool, score, risk, readiness)| Candidate {
        tool,
        score: f32::from(score) / 10.0,
        is_match: score >= 4,
        risk: RiskLevel::ALL[risk],
        readiness: [Ready, AwaitingApproval, PermissionDenied][readiness],
    })
}

proptest! {
    /// MGP-249..MGP-254: and only tools that are ready are loaded.
    #[test]
    fn the_status_and_the_lists_agree(
        all in proptest::collection::vec(proptest::collection::vec(candidate(), 0..5), 0..5),
        open: bool, risk in proptest::option::of(0usize..3),
    ) {
        let matches: Vec<CapabilityMatches<u8>> = all.iter().enumerate().map(|(n, candidates)| CapabilityMatches {
            capability: format!("c{n}"),
            candidates: candidates.clone(),
        }).collect();
        let out = decide(&matches, risk.map(|r| RiskLevel::ALL[r]), if open { OPEN } else { CLOSED });
        let nothing = out.to_load.is_empty() && out.pending.is_empty();
        match out.status {
            Fulfilled => prop_assert!(!out.to_load.is_empty() && out.pending.is_empty() && out.unavailable.is_empty()),
            Partial => {
                let all = out.pending.is_empty() && out.unavailable.is_empty();
                prop_assert!(!out.to_load.is_empty() && !all);
            }
            PendingApproval => prop_assert!(out.to_load.is_empty() && !out.pending.is_empty()),
            Unavailable => prop_assert!(nothing && (!open || matches.is_empty())),
            Creating => prop_assert!(nothing && open && !out.unavailable.is_empty()),
        }
        prop_assert_eq!(out.creation.is_some(), out.status == Creating);
        for tool in &out.to_load {
            let ready = |c: &Candidate<u8>| c.tool == *tool && c.readiness == Ready;
            prop_assert!(all.iter().flatten().any(ready));
        }
        prop_assert!(out.to_load.len() + out.pending.len() + out.unavailable.len() <= matches.len());
    }
}
