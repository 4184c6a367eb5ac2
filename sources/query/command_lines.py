"""Recognizes command lines in queries: in `git rebase -i squash` the dash does not exclude anything."""

# Commands whose names are no ordinary words. Others, such as find, make or python, would turn exclusions into text.
_COMMAND_NAMES = """
    apk apt apt-get awk cd chmod chown clang cmake cp crontab curl df dig dnf dpkg du egrep ffmpeg ffprobe fgrep g++
    gcc gdb gh git gpg grep gunzip gzip iptables javac journalctl jq kubectl ldd ln ls lsof md5sum mkdir mv mvn
    netstat nohup npm npx nslookup nvcc pgrep pip pip3 pipx pkill pnpm ps psql rclone rg rm rmdir rsync scp sed sftp
    sha256sum sqlite3 ssh ssh-keygen strace su sudo systemctl tar tcpdump traceroute tsc unzip useradd wget xargs
    yum zcat
"""
# Options that people type without their command, none of them a word that anyone would exclude.
_OPTION_NAMES = """
    al alh aux avz cvf cvzf czf la lah latr lh ltr rf rin rn tulpn tvf vv vvv xf xjf xvf xvzf xzf xzvf zcvf zxf zxvf
"""
_COMMANDS = frozenset(_COMMAND_NAMES.split())
_OPTIONS = frozenset(_OPTION_NAMES.split())
_PATH_BEGINNINGS = ("./", "../", "~/", "$(")
_SCRIPT_ENDINGS = (".sh", ".py", ".exe", ".bat", ".ps1")
_PUNCTUATION = ".,;:!?)"


def is_command_name(word: str) -> bool:
    """Returns whether a word is the name of a command, or the path of a script."""
    return word in _COMMANDS or word.startswith(_PATH_BEGINNINGS) or word.endswith(_SCRIPT_ENDINGS)


def is_option(word: str) -> bool:
    """Returns whether a word after a dash is an option even without a command before it: a single letter, an option
    with a value, or one that is no word."""
    word = word.rstrip(_PUNCTUATION)
    return len(word) == 1 or "=" in word or word in _OPTIONS
