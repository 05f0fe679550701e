# SPDX-License-Identifier: Apache-2.0
# Completion of aliquot(1) for fish: the tool itself says what fits.

function __aliquot_words
    set -l words (commandline -opc) (commandline -ct)
    for line in (aliquot __complete $words[2..-1] 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path (commandline -ct)
            case :program
                __fish_complete_command
            case '*'
                echo $line
        end
    end
end
complete -c aliquot -f -a '(__aliquot_words)'
