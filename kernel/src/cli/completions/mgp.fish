# fish completion of mgp. What the program says is only stored, never evaluated; fish escapes it.
function __mgp_complete
    set -l last (commandline --current-token --cut-at-cursor)
    set -l plain (string unescape -- "$last")
    test -n "$plain"; and set last "$plain"
    set -l said (command mgp __complete fish -- (commandline -opc) "$last" 2>/dev/null)
    switch "$said[1]"
        case files
            __fish_complete_path "$last"
        case folders
            __fish_complete_directories "$last" ''
        case '*'
            test (count $said) -gt 1; and printf '%s\n' $said[2..-1]
    end
end
complete -c mgp -f -a '(__mgp_complete)'
