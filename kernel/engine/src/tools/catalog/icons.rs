//! Icons of definitions (SEP-973) that clients over HTTP load from the kernel: `data:` URIs, and those at the address of a
//! server's own entry. Hosts load icons only from the address they are connected to.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mgp_json::{Splice, can_contain_strings, elements, member, quote, unquote};
use mgp_protocol::ids::ServerId;
use url::Url;

use super::cursor::CursorKey;
use super::item::range_in;
use super::{Catalog, ListKind};

/// Where clients load icons, below the address of the endpoint.
pub const ICONS_PATH: &str = "/icons/";
/// Most icons of a definition that the kernel serves; more stay as they are. Most have one for each theme.
const ICONS_MAX_PER_ITEM: usize = 8;
/// Most icons of a list of one server that the kernel serves: an entry of the table costs some 200 bytes.
const ICONS_MAX_PER_LIST: usize = 10_000;
/// Longest URL of an icon that the kernel fetches, in bytes.
const URL_MAX: usize = 2048;

/// An icon of a definition, as its server names it.
#[derive(Clone, Debug)]
pub(super) struct DeclaredIcon {
    definition: Arc<str>,
    /// The JSON string of its `src`.
    src: Range<u32>,
}

impl DeclaredIcon {
    /// Adds the icons of a definition that the kernel can serve.
    pub(super) fn collect_from(definition: &Arc<str>, icons: &mut Vec<Self>) {
        let found = sources(definition).take(ICONS_MAX_PER_ITEM);
        let found = found.filter(|json| unquote(json).is_some_and(|src| can_be_served(&src)));
        let room = ICONS_MAX_PER_LIST.saturating_sub(icons.len());
        icons.extend(found.take(room).map(|json| Self {
            definition: Arc::clone(definition),
            src: range_in(definition, json),
        }));
    }

    fn src(&self) -> String {
        let json = &self.definition[self.src.start as usize..self.src.end as usize];
        unquote(json).expect("it was read before").into_owned()
    }
}

fn can_be_served(src: &str) -> bool {
    strip_scheme(src, "data:").is_some() || (src.len() <= URL_MAX && is_http(src))
}

fn is_http(src: &str) -> bool {
    strip_scheme(src, "http://").is_some() || strip_scheme(src, "https://").is_some()
}

/// What follows a scheme, in whatever case (RFC 3986, section 3.1).
fn strip_scheme<'a>(uri: &'a str, scheme: &str) -> Option<&'a str> {
    let (begin, rest) = uri.split_at_checked(scheme.len())?;
    begin.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// The JSON strings of the `src` of a definition's icons.
fn sources(definition: &str) -> impl Iterator<Item = &str> {
    let has_icons = can_contain_strings(definition.as_bytes(), ["\"icons\""]).contains(&true);
    let icons = has_icons.then(|| member(definition, "icons").and_then(elements));
    let icons = icons.flatten().unwrap_or_default().into_iter();
    icons.filter_map(|icon| member(icon.get(), "src").filter(|src| src.starts_with('"')))
}

/// An icon by the name in its address. Only who read a list with it knows the name.
#[derive(Debug)]
struct ServedIcon {
    own: DeclaredIcon,
    /// The servers that have it.
    servers: Vec<ServerId>,
}

/// All icons that the kernel serves.
#[derive(Debug, Default)]
pub(super) struct Icons(HashMap<String, ServedIcon>);

impl Icons {
    pub(super) fn build<'a>(
        key: &CursorKey,
        icons: impl Iterator<Item = (&'a ServerId, &'a DeclaredIcon)>,
    ) -> Self {
        let mut table: HashMap<String, ServedIcon> = HashMap::new();
        for (server, own) in icons {
            let served = table.entry(key.name_icon(&own.src()));
            let served = served.or_insert_with(|| ServedIcon {
                own: own.clone(),
                servers: Vec::new(),
            });
            if served.servers.last() != Some(server) {
                served.servers.push(server.clone());
            }
        }
        Self(table)
    }
}

/// Where the bytes of an icon come from.
#[derive(Debug, PartialEq, Eq)]
pub enum IconSource<'a> {
    /// A `data:` URI.
    Data(Bytes),
    /// A URL, and the servers that name it.
    Url(Url, &'a [ServerId]),
}

impl Catalog {
    /// The icon of that name; `None` if no definition has it now, or if its `data:` URI is invalid.
    #[must_use]
    pub fn icon(&self, name: &str) -> Option<IconSource<'_>> {
        let served = self.icons.0.get(name)?;
        let src = served.own.src();
        if is_http(&src) {
            let url = Url::parse(&src).ok()?;
            return Some(IconSource::Url(url, &served.servers));
        }
        decode_data_uri(&src).map(|data| IconSource::Data(data.into()))
    }

    /// A page of a list in which the icons that the kernel serves have addresses below `address`. `is_own` says whether a
    /// URL is at the address of the server's entry.
    #[must_use]
    pub fn with_icon_addresses(
        &self,
        page: Bytes,
        kind: ListKind,
        address: &str,
        is_own: impl Fn(&ServerId, &Url) -> bool,
    ) -> Bytes {
        if self.icons.0.is_empty() {
            return page;
        }
        let Ok(text) = std::str::from_utf8(&page) else {
            return page;
        };
        let mut splice = Splice::new(text);
        let mut is_changed = false;
        let items = member(text, kind.result_member()).and_then(elements);
        for item in items.unwrap_or_default() {
            for json in sources(item.get()).take(ICONS_MAX_PER_ITEM) {
                let src = unquote(json).filter(|src| can_be_served(src));
                let Some(src) = src else { continue };
                let name = self.paging.key.name_icon(&src);
                let is_served = self.icons.0.get(&name).is_some_and(|icon| {
                    !is_http(&src)
                        || Url::parse(&src)
                            .is_ok_and(|url| icon.servers.iter().any(|it| is_own(it, &url)))
                });
                if is_served {
                    splice.replace(json, quote(&format!("{address}{ICONS_PATH}{name}")));
                    is_changed = true;
                }
            }
        }
        match is_changed {
            true => splice.finish().into_owned().into(),
            false => page,
        }
    }
}

/// The bytes of a `data:` URI (RFC 2397). Its media type is a claim of the server, and not used.
fn decode_data_uri(uri: &str) -> Option<Vec<u8>> {
    let (head, data) = strip_scheme(uri, "data:")?.split_once(',')?;
    let is_base64 = head.rsplit(';').next();
    if is_base64.is_some_and(|last| last.trim().eq_ignore_ascii_case("base64")) {
        return STANDARD.decode(data.trim()).ok();
    }
    let mut bytes = Vec::with_capacity(data.len());
    let mut rest = data.as_bytes();
    while let [first, after @ ..] = rest {
        (bytes, rest) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |it: &u8| char::from(*it).to_digit(16);
                let value = digit(high)? * 16 + digit(low)?;
                bytes.push(u8::try_from(value).ok()?);
                (bytes, after)
            }
            (b'%', _) => return None,
            (plain, after) => {
                bytes.push(*plain);
                (bytes, after)
            }
        };
    }
    Some(bytes)
}

/// The media type of an image by its bytes, whatever was declared; `None` for other contents.
#[must_use]
pub fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        [
            _,
            _,
            _,
            _,
            b'f',
            b't',
            b'y',
            b'p',
            b'a',
            b'v',
            b'i',
            b'f',
            ..,
        ] => Some("image/avif"),
        [0, 0, 1, 0, ..] => Some("image/x-icon"),
        _ => {
            let text = std::str::from_utf8(bytes).ok()?;
            let text = text.trim_start_matches('\u{feff}').trim_start();
            let is_markup = ["<svg", "<?xml", "<!--", "<!DOCTYPE svg"];
            let is_svg = is_markup.iter().any(|start| text.starts_with(start));
            (is_svg && text.contains("<svg")).then_some("image/svg+xml")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CatalogView, Paging, ServerOffer};
    use super::*;
    use mgp_protocol::dialect::ProtocolFamily;
    use serde_json::{Value, json};

    const PNG: &str = "data:image/png;base64,iVBORw0KGgo=";
    const OWN: &str = "http://127.0.0.1:9000/a.png";

    fn catalog(server: &str, tools: &[Value]) -> Catalog {
        let texts: Vec<String> = tools.iter().map(Value::to_string).collect();
        let offer = ServerOffer::new(ServerId::new(server)).with_list(ListKind::Tools, &texts);
        let key = CursorKey::new([7; 32]);
        Catalog::empty(Paging::new(key)).with_offers(&[Arc::new(offer)])
    }

    fn tool(icons: Value) -> Value {
        json!({"name": "t", "inputSchema": {"type": "object", "default": PNG}, "icons": icons, "_meta": {"icons": [{"src": PNG}]}})
    }

    fn shown(catalog: &Catalog) -> Value {
        let view = CatalogView::All;
        let page = catalog.page(&view, ListKind::Tools, None, ProtocolFamily::Stateless);
        let own = |server: &ServerId, url: &Url| {
            server.as_str() == "s" && url.origin().ascii_serialization() == "http://127.0.0.1:9000"
        };
        let text = catalog.with_icon_addresses(page.unwrap(), ListKind::Tools, "http://a", own);
        serde_json::from_slice(&text).unwrap()
    }

    fn name(src: &Value) -> &str {
        src.as_str()
            .unwrap()
            .strip_prefix("http://a/icons/")
            .unwrap()
    }

    /// EXT-235: `data:` URIs and those of the server's own address are served, all others stay; nothing else changes.
    #[test]
    fn own_icons_are_served_and_others_stay() {
        let other = "https://cdn.example/a.png";
        let icons =
            [PNG, OWN, other, "file:///a.png"].map(|src| json!({"src": src, "theme": "dark"}));
        let definition = tool(json!(icons));
        let catalog = catalog("s", std::slice::from_ref(&definition));
        let list = shown(&catalog);
        let mut item = list["tools"][0].clone();
        let data = item["icons"][0]["src"].clone();
        assert_eq!(
            catalog.icon(name(&data)),
            Some(IconSource::Data(Bytes::from_static(b"\x89PNG\r\n\x1a\n")))
        );
        let url = item["icons"][1]["src"].clone();
        let servers = [ServerId::new("s")];
        let expected = IconSource::Url(Url::parse(OWN).unwrap(), &servers);
        assert_eq!(catalog.icon(name(&url)), Some(expected));
        item["icons"][0]["src"] = json!(PNG);
        item["icons"][1]["src"] = json!(OWN);
        item["name"] = json!("t");
        assert_eq!(item, definition);
    }

    /// EXT-235: a URL at the address of another server stays: nothing is fetched for a server but from its own address.
    #[test]
    fn icons_at_addresses_of_others_stay() {
        let catalog = catalog("x", &[tool(json!([{"src": OWN}]))]);
        assert_eq!(shown(&catalog)["tools"][0]["icons"][0]["src"], OWN);
    }

    /// EXT-236: the name of an icon depends on a secret, so that a page cannot ask for icons that it only knows of.
    #[test]
    fn names_of_icons_are_secret() {
        let (one, other) = (CursorKey::new([1; 32]), CursorKey::new([2; 32]));
        assert_ne!(one.name_icon(PNG), other.name_icon(PNG));
        assert_ne!(one.name_icon(PNG), one.name_icon(OWN));
        assert_eq!(one.name_icon(PNG).len(), 32);
    }

    /// Many icons cost no more than their bound, and those beyond it stay as they are.
    #[test]
    fn icons_beyond_the_bound_stay() {
        let icons: Vec<Value> = (0..=ICONS_MAX_PER_ITEM)
            .map(|n| json!({"src": format!("data:,{n}")}))
            .collect();
        let list = shown(&catalog("s", &[tool(json!(icons))]));
        let icons = list["tools"][0]["icons"].as_array().unwrap();
        let kept = icons
            .iter()
            .filter(|icon| icon["src"].as_str().unwrap().starts_with("data:"));
        assert_eq!(kept.count(), 1);
    }

    #[test]
    fn data_uris_are_decoded() {
        let decode =
            |uri: &str| decode_data_uri(uri).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(
            decode("data:image/svg+xml,%3Csvg/%3e"),
            Some("<svg/>".into())
        );
        assert_eq!(
            decode("data:image/svg+xml;utf8,<svg a=','/>"),
            Some("<svg a=','/>".into())
        );
        assert_eq!(decode("data:;BASE64,YQ=="), Some("a".into()));
        assert_eq!(decode("DATA:;base64,YQ=="), Some("a".into()));
        for invalid in [
            "data:image/png;base64,Y",
            "data:image/png",
            "data:,%",
            "data:,%0",
            "data:,%zz",
        ] {
            assert_eq!(decode(invalid), None, "{invalid}");
        }
    }

    /// EXT-236: only images are served, with the type that their bytes have.
    #[test]
    fn contents_decide_the_type() {
        assert_eq!(image_type(b"\x89PNG\r\n\x1a\n..."), Some("image/png"));
        assert_eq!(image_type(b"GIF89a"), Some("image/gif"));
        assert_eq!(
            image_type(b"\n<?xml version='1.0'?><svg/>"),
            Some("image/svg+xml")
        );
        for other in [
            &b"<html><svg>"[..],
            b"<?xml?><html/>",
            b"text",
            b"",
            b"\xff\xfe",
        ] {
            assert_eq!(image_type(other), None);
        }
    }
}
