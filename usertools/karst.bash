# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
#
# Completion for bash of all of karst's programs.  Options and the words that they take are read from
# the program's own --help, so this knows no more and no less than the program in front of it.
# shellcheck shell=bash

# The lines of --help that describe option $2 of program $1, as one.
_karst_option_line() {
	"$1" --help 2>/dev/null | awk -v "start=^ *(-[a-zA-Z]( [^ ]+)?, )?$2( |\$|,)" '
		line && /^          +[^ -]/ { sub(/^ +/, ""); line = line " " $0; next }
		line { exit }
		$0 ~ start { line = $0 }
		END { print line }'
}

# Words that may follow option $2 of program $1; "FILE", "HOST" or nothing where they are not a list.
_karst_values() {
	local line value text
	line=$(_karst_option_line "$1" "$2")
	line=${line#*"$2"}
	[[ $line =~ ^\ ([^ ]+)\ *(.*)$ ]] || return
	value=${BASH_REMATCH[1]} text=${BASH_REMATCH[2]}
	case $value in
	*[a-z]*'|'*) printf '%s\n' "${value//|/ }" ;;
	'{'*'}') value=${value//[\{\}]/} && printf '%s\n' "${value//,/ }" ;;
	FILE | PATH | DIR | PROGRAM | SOCKET) printf 'FILE\n' ;;
	HOST) printf 'HOST\n' ;;
	*)
		# "rc, uc, ud [rc]", "instead of [log] level: error, warning", "ns: namespaces; env: ..."
		if [[ $text =~ ^(.*: )?([a-z0-9][a-z0-9_-]*(, [a-z0-9][a-z0-9_-]*)+)(:?\ |$|,$) ]]; then
			printf '%s\n' "${BASH_REMATCH[2]//,/}"
		elif [[ $text =~ ^[a-z]+:\  ]]; then
			grep -oE '(^|; )[a-z]+:' <<<"$text" | tr -d ';: ' | tr '\n' ' '
		fi
		;;
	esac
}

_karst_words() {
	mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}

_karst_files() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

_karst_options() {
	_karst_words "$("$1" --help 2>/dev/null | grep -oE -e '(^|[ ,[|])--?[a-zA-Z][a-zA-Z0-9-]*' |
		grep -oE -e '-.*')" "$2"
}

# The value of an option that stands before the word.  Fails if it takes none.
_karst_value() {
	local program=$1 word=$2 option=$3 values
	[[ $option == --* ]] || return
	values=$(_karst_values "$program" "$option")
	case $values in
	FILE) _karst_files "$word" ;;
	HOST) mapfile -t COMPREPLY < <(compgen -A hostname -- "$word") ;;
	'') [[ $(_karst_option_line "$program" "$option") =~ $option\ [A-Z] ]] ;;
	*) _karst_words "$values" "$word" ;;
	esac
}

_karst() {
	COMPREPLY=()
	_karst_value "$1" "$2" "$3" && return
	case $2 in
	-*) _karst_options "$1" "$2" ;;
	*) _karst_files "$2" ;;
	esac
}

# karst-run [OPTION...] PROGRAM [ARGUMENT...]
_karst_run() {
	local i
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--*)
			# one with a value, which is the next word
			if [[ $(_karst_option_line "$1" "${COMP_WORDS[i]}") =~ ^\ +"${COMP_WORDS[i]}"\ [A-Z] ]]; then
				i=$((i + 1))
			fi
			;;
		-*) ;;
		*)
			if declare -F _command_offset >/dev/null; then
				_command_offset "$i"
			else
				_karst_files "$2"
			fi
			return
			;;
		esac
	done
	_karst_value "$1" "$2" "$3" && return
	case $2 in
	-*) _karst_options "$1" "$2" ;;
	*) mapfile -t COMPREPLY < <(compgen -c -- "$2") ;;
	esac
}

# karst-setup COMMAND [ARGUMENT...]
_karst_setup() {
	local command=${COMP_WORDS[1]}
	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		_karst_words "$("$1" --help | sed -n 's/^  \([a-z]*\) .*/\1/p') --help" "$2"
		return
	fi
	case $2 in
	-*)
		_karst_words "--no-deps $("$1" "$command" --help 2>/dev/null |
			grep -oE -e '--[a-z][a-z-]*' | sort -u) --help" "$2"
		;;
	*)
		case $command in
		deps) _karst_words 'build test soak' "$2" ;;
		*)
			_karst_words "$("$1" "$command" --help 2>/dev/null |
				sed -n 's/^  \([a-z]*\) .*/\1/p')" "$2"
			;;
		esac
		;;
	esac
}

complete -F _karst karstd karst-perf karst-dump karst-nvmet karst-fwd karst-fabric karst-top karst-exporter \
	karst-capture karst-smc karst-plot karst-compare
complete -F _karst_run karst-run
complete -F _karst_setup karst-setup
