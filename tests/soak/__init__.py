"""The service under load and faults for minutes, judged by the library and by their memory."""
