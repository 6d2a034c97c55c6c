class Mgp < Formula
  desc "Gateway for MCP servers"
  homepage "{{URL}}"
  version "{{VERSION}}"
  license any_of: ["MIT", "Apache-2.0"]

  # Built for Linux; on macOS build from the sources.
  depends_on :linux

  on_linux do
    url "{{URL}}/{{ARCHIVE}}"
    sha256 "{{SHA256}}"
  end

  def install
    bin.install "bin/mgp"
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/mgp"
    zsh_completion.install "share/zsh/site-functions/_mgp"
    fish_completion.install "share/fish/vendor_completions.d/mgp.fish"
    doc.install Dir["share/doc/mgp/*"]
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/mgp --version")
  end
end
