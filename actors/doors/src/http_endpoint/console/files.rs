//! The files of the console, embedded from the sources: no build step and no external resources.

/// An embedded file.
pub(super) struct ConsoleFile {
    path: &'static str,
    /// Its media type.
    pub(super) kind: &'static str,
    /// Its content.
    pub(super) bytes: &'static [u8],
}

const PAGE: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// Embeds a file of the folder `actors/doors/console`.
macro_rules! file {
    ($path:literal, $name:literal, $kind:ident) => {
        ConsoleFile {
            path: $path,
            kind: $kind,
            bytes: include_bytes!(concat!("../../../console/", $name)),
        }
    };
}

const FILES: &[ConsoleFile] = &[
    file!("/", "index.html", PAGE),
    file!("/console/icon.svg", "icon.svg", PICTURE),
    file!("/console/style.css", "style.css", STYLE),
    file!("/console/app.js", "app.js", SCRIPT),
    file!("/console/apps.js", "apps.js", SCRIPT),
    file!("/console/content.js", "content.js", SCRIPT),
    file!("/console/diff.js", "diff.js", SCRIPT),
    file!("/console/dom.js", "dom.js", SCRIPT),
    file!("/console/forms.js", "forms.js", SCRIPT),
    file!("/console/mcp.js", "mcp.js", SCRIPT),
    file!("/console/store.js", "store.js", SCRIPT),
    file!("/console/pages/access.js", "pages/access.js", SCRIPT),
    file!("/console/pages/activity.js", "pages/activity.js", SCRIPT),
    file!("/console/pages/agents.js", "pages/agents.js", SCRIPT),
    file!("/console/pages/cluster.js", "pages/cluster.js", SCRIPT),
    file!("/console/pages/now.js", "pages/now.js", SCRIPT),
    file!("/console/pages/pins.js", "pages/pins.js", SCRIPT),
    file!("/console/pages/skills.js", "pages/skills.js", SCRIPT),
    file!("/console/pages/servers.js", "pages/servers.js", SCRIPT),
    file!("/console/pages/try.js", "pages/try.js", SCRIPT),
    file!("/console/pages/waiting.js", "pages/waiting.js", SCRIPT),
];

/// The document that the page of an app is loaded into; the console's own pages do not load it.
pub(super) const FRAME: &[u8] = include_bytes!("../../../console/frame.html");

/// Finds the file at a path.
pub(super) fn find(path: &str) -> Option<&'static ConsoleFile> {
    FILES.iter().find(|file| file.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0067: the page lists all its files, so that a browser fetches them at once, and no others.
    #[test]
    fn page_lists_all_its_files() {
        let page = std::str::from_utf8(find("/").unwrap().bytes).unwrap();
        for file in FILES.iter().filter(|file| file.path != "/") {
            let named = format!("=\"{}\"", file.path);
            assert_eq!(page.matches(&named).count(), 1, "{}", file.path);
        }
        assert_eq!(page.matches("=\"/").count(), FILES.len() - 1);
    }
}
