mod eras;
mod left_out;
mod nodes;
mod pages;
mod replicas;

use super::*;
use crate::tools::catalog::cursor::CursorKey;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::num::NonZeroUsize;

fn id(server: &str) -> ServerId {
    ServerId::new(server)
}

fn one(server: &str) -> CatalogView {
    CatalogView::One(id(server))
}

fn paging(size: usize) -> Paging {
    Paging {
        size: NonZeroUsize::new(size).unwrap(),
        key: CursorKey::new([1; 32]),
    }
}

fn empty() -> Catalog {
    Catalog::empty(Paging::new(CursorKey::new([1; 32])))
}

fn tool(name: &str) -> String {
    json!({"name": name, "inputSchema": {"type": "object"}}).to_string()
}

fn tools(server: &str, names: &[&str]) -> Arc<ServerOffer> {
    let definitions: Vec<String> = names.iter().map(|name| tool(name)).collect();
    Arc::new(ServerOffer::new(id(server)).with_list(ListKind::Tools, &definitions))
}

fn resources(server: &str, uris: &[&str], templates: &[&str]) -> Arc<ServerOffer> {
    let resource = |uri: &&str| json!({"uri": uri, "name": "r"}).to_string();
    let template = |uri: &&str| json!({"uriTemplate": uri, "name": "t"}).to_string();
    let resources: Vec<String> = uris.iter().map(resource).collect();
    let templates: Vec<String> = templates.iter().map(template).collect();
    let offer = ServerOffer::new(id(server)).with_list(ListKind::Resources, &resources);
    Arc::new(offer.with_list(ListKind::Templates, &templates))
}

fn first_page(catalog: &Catalog, view: &CatalogView, kind: ListKind) -> String {
    let page = catalog
        .page(view, kind, None, ProtocolFamily::Stateless)
        .unwrap();
    String::from_utf8(page.to_vec()).unwrap()
}

/// One page: the names in it, and the cursor to the next one.
fn read(page: &Bytes, kind: ListKind) -> (Vec<String>, Option<String>) {
    let page: Value = serde_json::from_slice(page).unwrap();
    let named = |entry: &Value| {
        let known_by = ["uriTemplate", "uri", "name"];
        let name = known_by.iter().find_map(|member| entry.get(member));
        name.unwrap().as_str().unwrap().to_owned()
    };
    let names = page[kind.result_member()]
        .as_array()
        .unwrap()
        .iter()
        .map(named)
        .collect();
    let cursor = page
        .get("nextCursor")
        .map(|c| c.as_str().unwrap().to_owned());
    (names, cursor)
}

/// All names of a list, by following the cursors.
fn walk(catalog: &Catalog, view: &CatalogView, kind: ListKind) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let page = catalog
            .page(view, kind, cursor.as_deref(), ProtocolFamily::Stateless)
            .unwrap();
        let (more, next) = read(&page, kind);
        names.extend(more);
        match next {
            Some(next) => cursor = Some(next),
            None => return names,
        }
    }
}

/// Only the name changes, and only where servers have to be told apart.
#[test]
fn definitions_are_unchanged_except_for_the_name() {
    let raw = r#"{ "z":1.0e2, "name" : "re\u0061d", "big":12345678901234567890123, "inputSchema":{"type":"object","$comment":"x"} }"#;
    let offer = ServerOffer::new(id("files")).with_list(ListKind::Tools, &[raw]);
    let catalog = empty().with_offers(&[Arc::new(offer)]);
    let own = first_page(&catalog, &one("files"), ListKind::Tools);
    assert_eq!(own, format!("{{\"tools\":[{raw}]}}"));
    let all = first_page(&catalog, &CatalogView::All, ListKind::Tools);
    let shown = raw.replace(r#""re\u0061d""#, r#""files__read""#);
    assert_eq!(all, format!("{{\"tools\":[{shown}]}}"));
    let read = catalog.tool(&CatalogView::All, "files__read").unwrap();
    assert_eq!(
        (&*read.own_name, &*read.own_name_json),
        ("read", "\"read\"")
    );
}

/// A-11: shown name, `server:tool`, and the bare name while it is unique.
#[test]
fn a_tool_has_three_names() {
    let mut catalog = empty().with_offers(&[tools("a", &["read", "only"]), tools("b", &["read"])]);
    let server = |catalog: &Catalog, name: &str| {
        let tool = catalog.tool(&CatalogView::All, name)?;
        Some(tool.server.to_string())
    };
    for (name, want) in [
        ("a__read", Some("a")),
        ("b__read", Some("b")),
        ("a:read", Some("a")),
        ("only", Some("a")),
        ("read", None),
        ("a__none", None),
    ] {
        assert_eq!(server(&catalog, name).as_deref(), want, "{name}");
    }
    let own = |view: &CatalogView, name: &str| {
        catalog
            .tool(view, name)
            .map(|t| t.canonical_name.to_string())
    };
    assert_eq!(own(&one("b"), "read").as_deref(), Some("b:read"));
    assert_eq!(own(&one("b"), "b__read"), None);
    assert_eq!(own(&one("gone"), "read"), None);
    catalog = catalog.with_offers(&[tools("b", &["read"])]);
    assert_eq!(server(&catalog, "read").as_deref(), Some("b"));
    // A bare name that is another tool's shown name means the other one.
    catalog = catalog.with_offers(&[tools("a", &["x"]), tools("b", &["a__x", "a:x"])]);
    assert_eq!(server(&catalog, "a__x").as_deref(), Some("a"));
    assert_eq!(server(&catalog, "a:x").as_deref(), Some("a"));
    // It means that one also while its server offers nothing, and when there never was one.
    catalog = catalog.with_offers(&[tools("b", &["a__x", "a:x", "vault__open", "x_y"])]);
    for name in ["a__x", "a:x", "vault__open"] {
        assert_eq!(server(&catalog, name), None, "{name}");
        let own = catalog.tool(&one("b"), name);
        assert_eq!(own.map(|tool| &*tool.own_name), Some(name));
        assert_eq!(server(&catalog, &format!("b:{name}")).as_deref(), Some("b"));
    }
    assert_eq!(server(&catalog, "x_y").as_deref(), Some("b"));
    let prompt = r#"{"name":"a__greet"}"#;
    let offer = ServerOffer::new(id("b")).with_list(ListKind::Prompts, &[prompt]);
    catalog = catalog.with_offers(&[Arc::new(offer)]);
    assert!(catalog.prompt(&CatalogView::All, "a__greet").is_none());
    assert!(catalog.prompt(&CatalogView::All, "b__a__greet").is_some());
}

#[test]
fn prompts_are_found_like_tools() {
    let greet = r#"{"name":"greet","arguments":[]}"#;
    let offer = |server: &str| {
        Arc::new(ServerOffer::new(id(server)).with_list(ListKind::Prompts, &[greet]))
    };
    let catalog = empty().with_offers(&[offer("b"), offer("a")]);
    assert_eq!(
        walk(&catalog, &CatalogView::All, ListKind::Prompts),
        ["a__greet", "b__greet"]
    );
    assert_eq!(walk(&catalog, &one("a"), ListKind::Prompts), ["greet"]);
    let prompt = catalog.prompt(&CatalogView::All, "b:greet").unwrap();
    assert_eq!((prompt.server.as_str(), &*prompt.own_name), ("b", "greet"));
    assert_eq!(&*prompt.raw, greet);
    assert!(catalog.prompt(&CatalogView::All, "greet").is_none());
}

/// CMCP-014: one bad definition costs the others nothing.
#[test]
fn bad_definitions_are_rejected_one_by_one() {
    let bad = [
        r#"{"name":"schema","inputSchema":"garbage"}"#,
        r#"{"name":"remote","inputSchema":{"type":"object","$ref":"http://x/"}}"#,
        r#"{"name":"out","inputSchema":{"type":"object"},"outputSchema":7}"#,
        r#"{"title":"nameless"}"#,
        r#"{"name":"twice","name":"thrice"}"#,
        r#"{"name":7}"#,
        r#"{"name":""}"#,
        r#"["no object"]"#,
        r#"{"name":"good","inputSchema":{"type":"object"}}"#,
        r#"{"name":"like","Name":"good"}"#,
    ];
    let mut definitions = vec![tool("good")];
    definitions.extend(bad.map(str::to_owned));
    let offer = ServerOffer::new(id("a")).with_list(ListKind::Tools, &definitions);
    assert_eq!(offer.counts().tools, 1);
    let (rejected, untold) = offer.rejected();
    assert_eq!((rejected.len(), untold), (bad.len(), 0));
    let told: Vec<String> = rejected.iter().map(ToString::to_string).collect();
    assert!(
        told[0].starts_with("tool schema: inputSchema: "),
        "{told:?}"
    );
    assert!(told[1].contains("never fetched"), "{told:?}");
    assert!(told[2].starts_with("tool out: outputSchema: "), "{told:?}");
    assert_eq!(rejected[8].reason, BadItem::Duplicate);
    assert_eq!(
        rejected[9].reason,
        BadItem::Lookalike("Name".into(), "name")
    );
    let templates = [
        r#"{"uriTemplate":"{","name":"t"}"#,
        r#"{"uriTemplate":"x://{y}","name":"t"}"#,
    ];
    let offer = offer.with_list(ListKind::Templates, &templates);
    assert_eq!(offer.counts().templates, 1);
    assert_eq!(offer.rejected().0.len(), bad.len() + 1);
}

/// CMCP-009: the route carries what a call is judged by.
#[test]
fn a_tool_has_compiled_schemas() {
    let raw = r#"{"name":"add","inputSchema":{"type":"object","required":["a"]},"outputSchema":{"type":"object","required":["sum"]}}"#;
    let bare = tool("bare");
    let offer = ServerOffer::new(id("a")).with_list(ListKind::Tools, &[raw, &bare]);
    let catalog = empty().with_offers(&[Arc::new(offer)]);
    let add = catalog.tool(&CatalogView::All, "add").unwrap();
    let (input, output) = (add.input.compiled().unwrap(), add.output.as_ref().unwrap());
    assert!(input.check("{}").is_err());
    assert!(output.compiled().unwrap().check(r#"{"sum":1}"#).is_ok());
    let bare = catalog.tool(&CatalogView::All, "bare").unwrap();
    assert!(bare.input.compiled().unwrap().check("{}").is_ok() && bare.output.is_none());
}

#[test]
fn lists_are_bounded() {
    let many: Vec<String> = (0..ITEMS_MAX + 150)
        .map(|n| tool(&format!("t{n}")))
        .collect();
    let offer = ServerOffer::new(id("a")).with_list(ListKind::Tools, &many);
    assert_eq!(offer.counts().tools, ITEMS_MAX);
    let (rejected, untold) = offer.rejected();
    assert_eq!((rejected.len(), untold), (100, 50));
    assert_eq!(rejected[0].reason, BadItem::TooMany(ITEMS_MAX));
    let many: Vec<String> = (0..=TEMPLATES_MAX)
        .map(|n| format!("{{\"uriTemplate\":\"t{n}://{{x}}\",\"name\":\"t\"}}"))
        .collect();
    assert_eq!(
        ServerOffer::new(id("a"))
            .with_list(ListKind::Templates, &many)
            .counts()
            .templates,
        TEMPLATES_MAX
    );
    let large = format!(
        "{{\"name\":\"large\",\"x\":\"{}\"}}",
        "x".repeat(DEFINITION_MAX)
    );
    let long = format!("{{\"name\":\"{}\"}}", "x".repeat(NAME_MAX + 1));
    let offer = ServerOffer::new(id("a")).with_list(ListKind::Tools, &[large, long]);
    assert_eq!(offer.counts().tools, 0);
    assert!(matches!(offer.rejected().0[0].reason, BadItem::TooLarge(_)));
    assert!(matches!(
        offer.rejected().0[1].reason,
        BadItem::NameLength("name", NAME_MAX)
    ));
    assert!(offer.rejected().0[1].item.len() <= 80);
}

/// EXT-046: no tool is named as a skill, so that no grant of a skill is one of a tool.
#[test]
fn tool_named_as_a_skill_is_rejected() {
    let tool = r#"{"name":"skill://a/SKILL.md","inputSchema":{}}"#.to_owned();
    let offer = ServerOffer::new(id("a")).with_list(ListKind::Tools, &[tool]);
    assert_eq!(offer.counts().tools, 0);
    assert!(matches!(offer.rejected().0[0].reason, BadItem::SkillName));
}

#[test]
fn a_definition_over_several_lines_becomes_one() {
    let raw = "{\r\n  \"name\": \"x\",\n  \"description\": \"a\\nb\",\n \"inputSchema\": {\"type\": \"object\"}\n}";
    let offer = ServerOffer::new(id("a")).with_list(ListKind::Tools, &[raw]);
    let catalog = empty().with_offers(&[Arc::new(offer)]);
    for view in [CatalogView::All, one("a")] {
        let page = first_page(&catalog, &view, ListKind::Tools);
        assert!(!page.contains('\n') && page.contains("a\\nb"), "{page}");
    }
}

/// CMCP-080, A-28: whoever owns a URI alone keeps it, others are wrapped.
#[test]
fn a_uri_of_two_servers_is_wrapped_for_each() {
    let offers = [
        resources("a", &["file:///both", "file:///a"], &[]),
        resources("b", &["file:///both"], &[]),
    ];
    let catalog = empty().with_offers(&offers);
    let wrapped = |server: &str| uris::wrap(&id(server), "file:///both");
    let all = walk(&catalog, &CatalogView::All, ListKind::Resources);
    assert_eq!(all, [wrapped("a"), "file:///a".into(), wrapped("b")]);
    assert_eq!(
        walk(&catalog, &one("b"), ListKind::Resources),
        ["file:///both"]
    );
    let leads = |view: &CatalogView, uri: &str| {
        let route = catalog.resource(view, uri)?;
        Some((route.server.to_string(), route.uri.into_owned()))
    };
    let to = |server: &str, uri: &str| Some((server.to_owned(), uri.to_owned()));
    assert_eq!(leads(&CatalogView::All, "file:///a"), to("a", "file:///a"));
    assert_eq!(
        leads(&CatalogView::All, &wrapped("b")),
        to("b", "file:///both")
    );
    assert_eq!(leads(&CatalogView::All, "file:///both"), None);
    assert_eq!(leads(&CatalogView::All, "mcpk://gone/x%3A"), None);
    assert_eq!(leads(&one("b"), "file:///both"), to("b", "file:///both"));
    assert_eq!(leads(&one("b"), "file:///a"), None);
    let shown = |server: &str, uri| {
        catalog
            .visible_uri(&CatalogView::All, &id(server), uri)
            .into_owned()
    };
    assert_eq!(shown("b", "file:///both"), wrapped("b"));
    assert_eq!(shown("a", "file:///a"), "file:///a");
    assert_eq!(shown("b", "file:///a"), uris::wrap(&id("b"), "file:///a"));
    assert_eq!(
        catalog.visible_uri(&one("b"), &id("b"), "file:///both"),
        "file:///both"
    );
    // The other one is gone: the URI is plain again, and the wrapped form still leads there.
    let catalog = catalog.with_offers(&offers[1..]);
    assert_eq!(
        walk(&catalog, &CatalogView::All, ListKind::Resources),
        ["file:///both"]
    );
    assert_eq!(
        catalog
            .resource(&CatalogView::All, &wrapped("b"))
            .unwrap()
            .uri,
        "file:///both"
    );
}

#[test]
fn no_server_can_take_the_wrapped_uris_of_another() {
    let stolen = uris::wrap(&id("good"), "file:///x");
    let catalog = empty().with_offers(&[
        resources("evil", &[&stolen], &["{+all}", "mcpk://good/{+x}"]),
        resources("good", &["file:///x"], &[]),
    ]);
    assert_eq!(
        catalog
            .resource(&CatalogView::All, &stolen)
            .unwrap()
            .server
            .as_str(),
        "good"
    );
    let all = walk(&catalog, &CatalogView::All, ListKind::Resources);
    assert_eq!(all[0], uris::wrap(&id("evil"), &stolen));
    let route = catalog.resource(&CatalogView::All, &all[0]).unwrap();
    assert_eq!(
        (route.server.as_str(), &*route.uri),
        ("evil", stolen.as_str())
    );
}

#[test]
fn unlisted_uris_go_to_the_most_specific_template() {
    let catalog = empty().with_offers(&[
        resources("a", &[], &["db://{+rest}", "both://{x}"]),
        resources(
            "b",
            &["db://tables/listed"],
            &["db://tables/{name}", "both://{x}"],
        ),
    ]);
    let server =
        |view: &CatalogView, uri: &str| Some(catalog.resource(view, uri)?.server.to_string());
    assert_eq!(
        server(&CatalogView::All, "db://tables/users").as_deref(),
        Some("b")
    );
    assert_eq!(
        server(&CatalogView::All, "db://other/users").as_deref(),
        Some("a")
    );
    assert_eq!(
        server(&CatalogView::All, "db://tables/listed").as_deref(),
        Some("b")
    );
    assert_eq!(server(&CatalogView::All, "none://x"), None);
    assert_eq!(server(&one("a"), "db://tables/users").as_deref(), Some("a"));
    // A template of two servers is wrapped for each and stays a template.
    let templates = walk(&catalog, &CatalogView::All, ListKind::Templates);
    let want = [
        "db://{+rest}",
        "mcpk://a/both://{x}",
        "db://tables/{name}",
        "mcpk://b/both://{x}",
    ];
    assert_eq!(templates, want);
    assert_eq!(server(&CatalogView::All, "both://1"), None);
    assert_eq!(
        server(&CatalogView::All, "mcpk://b/both://1").as_deref(),
        Some("b")
    );
    let own = |view: &CatalogView, shown: &str| {
        let template = catalog.template(view, shown)?;
        Some((
            template.server.to_string(),
            template.uri_template.to_string(),
        ))
    };
    assert_eq!(
        own(&CatalogView::All, want[3]),
        Some(("b".into(), "both://{x}".into()))
    );
    assert_eq!(own(&CatalogView::All, "both://{x}"), None);
    assert_eq!(
        own(&one("a"), "both://{x}"),
        Some(("a".into(), "both://{x}".into()))
    );
}

#[test]
fn unchanged_parts_are_shared() {
    let (a, b) = (tools("a", &["x", "y"]), tools("b", &["x"]));
    let old = empty().with_offers(&[Arc::clone(&a), b]);
    let grown = Arc::new(
        (*a).clone()
            .with_list(ListKind::Tools, &[tool("y"), tool("x"), tool("z")]),
    );
    let kept = |offer: &ServerOffer, name: &str| {
        let tool = offer.tools().iter().find(|t| *t.own_name == *name);
        Arc::clone(tool.unwrap())
    };
    assert!(Arc::ptr_eq(&kept(&a, "x"), &kept(&grown, "x")));
    let new = old.with_offers(&[grown, tools("b", &["x"])]);
    let page = |catalog: &Catalog, view: &CatalogView| {
        catalog
            .page(view, ListKind::Tools, None, ProtocolFamily::Stateless)
            .unwrap()
    };
    let same = |view: &CatalogView| page(&old, view).as_ptr() == page(&new, view).as_ptr();
    assert!(same(&one("b")));
    assert!(!same(&one("a")));
    assert!(!same(&CatalogView::All));
    let prompts = |catalog: &Catalog| {
        catalog
            .page(
                &CatalogView::All,
                ListKind::Prompts,
                None,
                ProtocolFamily::Stateless,
            )
            .unwrap()
    };
    assert_eq!(prompts(&old).as_ptr(), prompts(&new).as_ptr());
    assert_eq!((old.generation(), new.generation()), (1, 2));
    assert_eq!(new.counts(&id("a")).unwrap().tools, 3);
    assert_eq!(new.counts(&id("gone")), None);
}

/// MCP-042, MCP-047, MCP-065: who has to be told of what, and nobody else.
#[test]
fn changed_lists_have_their_view_and_kind() {
    let none = empty();
    let a = tools("a", &["x"]);
    let first = none.with_offers(&[Arc::clone(&a)]);
    let told = [
        (CatalogView::All, ListKind::Tools),
        (one("a"), ListKind::Tools),
    ];
    assert_eq!(changed_lists(&none, &first), told);
    assert_eq!(changed_lists(&first, &none), told);
    assert_eq!(
        changed_lists(&first, &first.with_offers(&[tools("a", &["x"])])),
        []
    );
    assert_eq!(
        changed_lists(&first, &first.with_offers(&[a, tools("b", &[])])),
        []
    );
    let templates = first.with_offers(&[resources("a", &[], &["x://{y}"])]);
    let want = [
        (CatalogView::All, ListKind::Tools),
        (CatalogView::All, ListKind::Resources),
        (one("a"), ListKind::Tools),
        (one("a"), ListKind::Resources),
    ];
    assert_eq!(changed_lists(&first, &templates), want);
    // A second owner changes how the first one's URI is shown among all, not at its own door.
    let alone = none.with_offers(&[resources("a", &["x://1"], &[])]);
    let shared = alone.with_offers(&[
        resources("a", &["x://1"], &[]),
        resources("b", &["x://1"], &[]),
    ]);
    let want = [
        (CatalogView::All, ListKind::Resources),
        (one("b"), ListKind::Resources),
    ];
    assert_eq!(changed_lists(&alone, &shared), want);
}

/// A model of the catalog: the offers themselves, searched from end to end.
type Model = BTreeMap<String, Vec<String>>;

fn as_offers(model: &Model) -> Vec<Arc<ServerOffer>> {
    let offer = |(server, names): (&String, &Vec<String>)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        tools(server, &names)
    };
    model.iter().map(offer).collect()
}

proptest! {
    /// However catalogs follow each other, each is what it would be if it were the first.
    #[test]
    fn a_catalog_is_its_offers(
        steps in proptest::collection::vec(
            proptest::collection::btree_map("[ab_.]{1,3}", proptest::collection::vec("[ab_.]{1,3}", 0..6), 0..4),
            1..5,
        ),
        size in 1usize..4,
    ) {
        let mut catalog = Catalog::empty(paging(size));
        for mut model in steps {
            for names in model.values_mut() {
                let mut seen = BTreeSet::new();
                names.retain(|name| seen.insert(name.clone()));
            }
            let before = catalog;
            catalog = before.with_offers(&as_offers(&model));
            let mut shown = Vec::new();
            for (server, names) in &model {
                prop_assert_eq!(&walk(&catalog, &one(server), ListKind::Tools), names);
                for name in names {
                    let own = catalog.tool(&one(server), name).unwrap();
                    let full = format!("{server}:{name}");
                    prop_assert_eq!(&*own.canonical_name, full.as_str());
                    let all = catalog.tool(&CatalogView::All, &own.merged_name).unwrap();
                    prop_assert_eq!(&all.canonical_name, &own.canonical_name);
                    let owners = model.values().filter(|names| names.contains(name)).count();
                    let bare = catalog.tool(&CatalogView::All, name);
                    let plain = owners == 1 && !crate::tool_names::is_qualified(name);
                    prop_assert!(!plain || bare.is_some());
                    shown.push(own.merged_name.to_string());
                }
            }
            prop_assert_eq!(&walk(&catalog, &CatalogView::All, ListKind::Tools), &shown);
            let differs = walk(&before, &CatalogView::All, ListKind::Tools) != shown;
            let told = changed_lists(&before, &catalog).contains(&(CatalogView::All, ListKind::Tools));
            prop_assert_eq!(told, differs);
        }
    }

    #[test]
    fn no_definition_breaks_reading(raw in r#"[{}\[\]":,nameuri\\ x0-9]{0,50}"#) {
        for kind in ListKind::ALL {
            let wrapped = format!("{{\"name\":{raw}}}");
            let offer = ServerOffer::new(id("a")).with_list(kind, &[&*raw, &*wrapped]);
            let _ = empty().with_offers(&[Arc::new(offer)]);
        }
    }
}
