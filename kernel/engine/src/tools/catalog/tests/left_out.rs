//! Definitions that no strict client could read.

use super::*;

/// CMCP-049, MCP schema: what lacks a member that each of its kind has, or has it in another form, is
/// left out by name; clients that read strictly would lose the whole list with it.
#[test]
fn items_without_a_required_member_are_rejected_by_name() {
    let offer = ServerOffer::new(id("a"));
    let wrong = |kind, definition: &str| {
        let offer = offer.clone().with_list(kind, &[definition]);
        let (rejected, _) = offer.rejected();
        rejected.first().map_or(String::new(), ToString::to_string)
    };
    let (tools, prompts) = (ListKind::Tools, ListKind::Prompts);
    let (resources, templates) = (ListKind::Resources, ListKind::Templates);
    for (kind, definition, why) in [
        (
            tools,
            r#"{"name":"t"}"#,
            r#"tool t: the definition has no "inputSchema""#,
        ),
        (
            tools,
            r#"{"name":"t","inputSchema":null}"#,
            r#"no "inputSchema""#,
        ),
        (
            tools,
            r#"{"name":"t","inputSchema":{"type":"object"},"icons":{}}"#,
            r#"tool t: "icons" is no array"#,
        ),
        (
            prompts,
            r#"{"name":"p","icons":"x"}"#,
            r#"prompt p: "icons" is no array"#,
        ),
        (
            prompts,
            r#"{"name":"p","arguments":{}}"#,
            r#"prompt p: "arguments" is no array"#,
        ),
        (
            prompts,
            r#"{"name":"p","arguments":[{"required":true}]}"#,
            "missing field `name`",
        ),
        (
            prompts,
            r#"{"name":"p","arguments":[{"name":"a","required":"yes"}]}"#,
            "expected a boolean",
        ),
        (
            prompts,
            r#"{"name":"p","arguments":["a"]}"#,
            r#"each of "arguments""#,
        ),
        (
            resources,
            r#"{"uri":"a://b"}"#,
            r#"resource a://b: the definition must have one string "name""#,
        ),
        (resources, r#"{"uri":"a://b","name":7}"#, r#"string "name""#),
        (
            resources,
            r#"{"uri":"a://b","name":"b","icons":7}"#,
            r#""icons" is no array"#,
        ),
        (
            templates,
            r#"{"uriTemplate":"a://{b}"}"#,
            r#"string "name""#,
        ),
    ] {
        let said = wrong(kind, definition);
        assert!(said.contains(why), "{definition}: {said}");
    }
    for (kind, definition) in [
        (
            tools,
            r#"{"name":"t","inputSchema":{"type":"object"},"icons":[]}"#,
        ),
        (
            prompts,
            r#"{"name":"p","arguments":[{"name":"a"},{"name":"b","required":true}]}"#,
        ),
        (resources, r#"{"uri":"a://b","name":""}"#),
    ] {
        assert_eq!(wrong(kind, definition), "");
    }
}

/// MCP-045: the route of a prompt carries what it cannot do without.
#[test]
fn a_prompt_has_its_required_arguments() {
    let raw = r#"{"name":"p","arguments":[{"name":"b","required":true},{"name":"c"},{"name":"a","required":true}]}"#;
    let offer = ServerOffer::new(id("s")).with_list(ListKind::Prompts, &[raw]);
    let catalog = empty().with_offers(&[Arc::new(offer)]);
    let prompt = catalog.prompt(&CatalogView::All, "p").unwrap();
    let required: Vec<&str> = prompt
        .required_arguments
        .iter()
        .map(|name| &**name)
        .collect();
    assert_eq!(required, ["b", "a"]);
}
