# Completion of ulf in bash: commands and flags as `ulf help` and `ulf COMMAND --help` list them.
_ulf() {
  local word=${COMP_WORDS[COMP_CWORD]} words
  if [ "$COMP_CWORD" -eq 1 ]; then
    words=$(ulf help 2>/dev/null | sed -n 's/^  \([a-z-]*\) .*/\1/p')
  elif [[ $word == -* ]]; then
    words=$(ulf "${COMP_WORDS[1]}" --help 2>/dev/null | sed -n 's/^  \(--[a-z_0-9]*\).*/\1/p')
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    return
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o filenames -F _ulf ulf
