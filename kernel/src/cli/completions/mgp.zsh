#compdef mgp
# zsh completion of mgp. What the program says is only stored, never evaluated; compadd quotes it.
_mgp() {
    local -a said words_there shown open open_shown
    local line word
    said=("${(@f)$(command mgp __complete zsh -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    case $said[1] in
        files) _files; return ;;
        folders) _files -/; return ;;
    esac
    for line in "${(@)said[2,-1]}"; do
        word=${line%%$'\t'*}
        [[ -n $word ]] || continue
        [[ $line == *$'\t'* ]] && line="$word  -- ${line#*$'\t'}"
        if [[ $word == *= ]]; then
            open+=("$word"); open_shown+=("$line")
        else
            words_there+=("$word"); shown+=("$line")
        fi
    done
    (( $#words_there )) && compadd -l -d shown -a -- words_there
    # Behind KEY= its value goes on.
    (( $#open )) && compadd -S '' -l -d open_shown -a -- open
    (( $#words_there + $#open ))
}
if [[ $funcstack[1] == _mgp ]]; then _mgp "$@"; else compdef _mgp mgp; fi
