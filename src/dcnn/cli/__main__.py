from dcnn.cli import main

main()
