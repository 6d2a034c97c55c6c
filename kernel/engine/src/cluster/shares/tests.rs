use proptest::prelude::*;

use super::*;
use std::sync::Arc;

fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

fn listed() -> BTreeSet<Arc<str>> {
    let names = ["read_file", "read_dir", "Write", "größe"];
    names.into_iter().map(Arc::from).collect()
}

fn ask<'a>(tools: Option<&'a str>, listed: Option<&'a BTreeSet<Arc<str>>>) -> ShareRequest<'a> {
    ShareRequest {
        server: ServerId::new("files"),
        to: ShareAudience::Cluster,
        tools,
        listed_tools: listed,
        allow_unmatched: false,
    }
}

fn refused(request: &ShareRequest<'_>) -> String {
    Shares::default().share(request).unwrap_err().to_string()
}

/// PRJ-005, FED-029: nothing is shared by default.
#[test]
fn a_tool_is_shared_only_with_the_audience_of_a_rule() {
    let files = ServerId::new("files");
    let mut shares = Shares::default();
    assert!(!shares.can_call(node(1), &files, "read_file"));
    let listed = listed();
    let request = ShareRequest {
        to: ShareAudience::Node(node(1)),
        ..ask(Some("read_*"), Some(&listed))
    };
    let change = shares.share(&request).unwrap().unwrap();
    assert!(shares.apply(&change) && !shares.apply(&change));
    assert_eq!(shares.share(&request), Ok(None));
    assert!(shares.can_call(node(1), &files, "read_file"));
    assert!(!shares.can_call(node(1), &files, "Write"));
    assert!(!shares.can_call(node(2), &files, "read_file"));
    assert!(!shares.can_call(node(1), &ServerId::new("file"), "read_file"));
    assert_eq!(shares.audience_for(node(1)), ShareAudience::Node(node(1)));
    assert_eq!(shares.audience_for(node(2)), ShareAudience::Cluster);
}

#[test]
fn a_rule_without_a_match_is_rejected_with_a_suggestion() {
    let listed = listed();
    for (typed, said) in [
        ("raed_file", "files has no tool that \"raed_file\" means"),
        ("READ_*", "\"read_*\" is one"),
        ("write", "\"Write\" is one"),
        ("files__read_*", "\"read_*\" is one"),
        ("files:read_file", "\"read_file\" is one"),
        ("*_file", "stands at the end only"),
        ("r\u{435}ad_file", "U+0435"),
        ("read\u{202e}*", "U+202E"),
        ("", "an empty name"),
    ] {
        let words = refused(&ask(Some(typed), Some(&listed)));
        assert!(words.contains(said), "{typed:?}: {words}");
    }
    assert!(refused(&ask(Some("read_*"), None)).contains("listed no tools yet"));
    let later = ShareRequest {
        allow_unmatched: true,
        ..ask(Some("later_*"), None)
    };
    assert!(Shares::default().share(&later).is_ok());
    for good in [Some("größe"), Some("*"), None] {
        assert!(
            Shares::default().share(&ask(good, Some(&listed))).is_ok(),
            "{good:?}"
        );
    }
}

/// PRJ-008, FED-028.
#[test]
fn a_server_of_another_node_cannot_be_shared() {
    for foreign in ["nas/files", "files~0a", "nas:files"] {
        let server = ServerId::new(foreign);
        let request = ShareRequest {
            server,
            ..ask(None, None)
        };
        assert!(
            refused(&request).contains("only its owner shares it"),
            "{foreign}"
        );
    }
}

#[test]
fn unsharing_returns_the_ended_rules_or_the_existing_ones() {
    let mut shares = Shares::default();
    let files = ServerId::new("files");
    for change in [ask(None, None), ask(Some("read_file"), Some(&listed()))] {
        let change = shares.share(&change).unwrap().unwrap();
        shares.apply(&change);
    }
    let words = shares
        .unshare(&files, None, Some("Write"))
        .unwrap_err()
        .to_string();
    assert!(
        words.contains("* to cluster, read_file to cluster"),
        "{words}"
    );
    for change in shares.unshare(&files, None, Some("*")).unwrap() {
        shares.apply(&change);
    }
    assert!(shares.can_call(node(1), &files, "read_file"));
    assert!(!shares.can_call(node(1), &files, "Write"));
    assert!(shares.apply(&ShareChange::Vacate(files.clone())) && shares.is_empty());
    let words = shares.unshare(&files, None, None).unwrap_err().to_string();
    assert!(words.contains("with nobody"), "{words}");
}

#[test]
fn a_rule_beyond_the_limits_is_rejected_with_a_remedy() {
    let mut shares = Shares::default();
    for n in 0..NODES_NAMED_MAX {
        let to = ShareAudience::Node(node(u8::try_from(n).unwrap()));
        let change = shares.share(&ShareRequest {
            to,
            ..ask(None, None)
        });
        shares.apply(&change.unwrap().unwrap());
    }
    let to = ShareAudience::Node(node(200));
    let refusal = shares.share(&ShareRequest {
        to,
        ..ask(None, None)
    });
    assert_eq!(refusal, Err(ShareRequestError::TooManyNodes));
    for n in shares.len()..SHARES_MAX {
        let name = format!("t{n}");
        let request = ShareRequest {
            allow_unmatched: true,
            ..ask(Some(&name), None)
        };
        let change = shares.share(&request).unwrap().unwrap();
        shares.apply(&change);
    }
    assert_eq!(
        shares.share(&ask(None, None)),
        Err(ShareRequestError::TooMany)
    );
    assert!(shares.apply(&ShareChange::Forget(node(0))));
    assert_eq!(shares.named_nodes().len(), NODES_NAMED_MAX - 1);
}

/// Invalid stored rules are rejected.
#[test]
fn rules_round_trip_through_storage() {
    let rule = Share {
        server: ServerId::new("files"),
        to: ShareAudience::Node(node(7)),
        tools: ToolPattern::parse("größe", listed()).unwrap(),
    };
    let change = ShareChange::Share(rule);
    let bytes = rmp_serde::to_vec_named(&change).unwrap();
    assert_eq!(
        rmp_serde::from_slice::<ShareChange>(&bytes).unwrap(),
        change
    );
    assert!(serde_json::from_str::<ToolPattern>("\"a*b\"").is_err());
}

fn changes() -> impl Strategy<Value = Vec<ShareChange>> {
    let rule = ("[ab]", 0..3_u8, prop_oneof!["[xy]{1,2}", "[xy]{0,2}\\*"]);
    let rule = rule.prop_map(|(server, to, tools)| Share {
        server: ServerId::new(server),
        to: match to {
            0 => ShareAudience::Cluster,
            n => ShareAudience::Node(node(n)),
        },
        tools: ToolPattern::try_from(tools).unwrap(),
    });
    let change = prop_oneof![
        4 => rule.clone().prop_map(ShareChange::Share),
        2 => rule.prop_map(ShareChange::Unshare),
        1 => (1..3_u8).prop_map(|n| ShareChange::Forget(node(n))),
        1 => "[ab]".prop_map(|server| ShareChange::Vacate(ServerId::new(server))),
    ];
    proptest::collection::vec(change, 0..24)
}

proptest! {
    /// Against a model: a list of rules.
    #[test]
    fn a_node_may_call_exactly_what_is_shared(changes in changes()) {
        let mut shares = Shares::default();
        let mut model: Vec<Share> = Vec::new();
        for change in &changes {
            shares.apply(change);
            match change {
                ShareChange::Share(rule) => model.push(rule.clone()),
                ShareChange::Unshare(rule) => model.retain(|there| there != rule),
                ShareChange::Forget(node) => model.retain(|there| there.to != ShareAudience::Node(*node)),
                ShareChange::Vacate(server) => model.retain(|there| there.server != *server),
            }
        }
        for server in ["a", "b"].map(ServerId::new) {
            for tool in ["x", "y", "xx", "xy", "yx", "yy", "z"] {
                for n in 1..4 {
                    let says = |rule: &Share| {
                        let pattern = rule.tools.to_string();
                        let named = match pattern.strip_suffix('*') {
                            Some(beginning) => tool.starts_with(beginning),
                            None => pattern == tool,
                        };
                        let to = rule.to == ShareAudience::Cluster || rule.to == ShareAudience::Node(node(n));
                        rule.server == server && named && to
                    };
                    let said = model.iter().any(says);
                    prop_assert_eq!(shares.can_call(node(n), &server, tool), said);
                    prop_assert_eq!(shares.is_tool_shared(shares.audience_for(node(n)), &server, tool), said);
                }
            }
        }
    }
}
