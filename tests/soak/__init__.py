"""The service and the gateway under load and faults for minutes, judged by the library and by their memory."""
